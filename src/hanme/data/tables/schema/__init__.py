"""The pydantic models of ``graph.toml``."""

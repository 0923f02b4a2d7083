"""Profile columns, infer a schema and write ``graph.toml``."""

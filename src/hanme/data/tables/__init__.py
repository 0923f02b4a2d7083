"""Graphs from a user's own tables: ``graph.toml`` describes them, ``hanme init`` drafts one."""

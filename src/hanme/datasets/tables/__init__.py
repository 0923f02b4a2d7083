"""Graphs from a user's own tables: ``graph.toml`` describes them, ``hanme init`` drafts one."""

from hanme.datasets.tables.config import FILE, config_path, is_tables, read_config
from hanme.datasets.tables.expand import expand
from hanme.datasets.tables.fitted import FittedGraph
from hanme.datasets.tables.frames import load_frames
from hanme.datasets.tables.load import is_large, load_tables, store_tables

__all__ = [
    "FILE",
    "FittedGraph",
    "config_path",
    "expand",
    "is_large",
    "is_tables",
    "load_frames",
    "load_tables",
    "read_config",
    "store_tables",
]

"""Write a graph.toml as ``hanme init`` does."""

from pathlib import Path

from hanme.data.tables.draft.draft import output_path, write
from hanme.data.tables.draft.infer import infer


def write_draft(path: Path, target: str | None = None, label: str | None = None) -> Path:
    """Infer the schema of a folder or file, write it and return its path."""
    file = output_path(path)
    write(infer(path, target, label), file)
    return file

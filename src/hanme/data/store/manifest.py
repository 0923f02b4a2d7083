"""What the manifest of a store says, and whether its files are what that asks for.

Checksums find damage. These checks find what was never right: numbers that the code behind would
follow out of an array.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from hanme.common.files import read_json
from hanme.common.options import Closed, validated
from hanme.data.store.files import MANIFEST, VERSION, Mapped, checksum_of, map_files
from hanme.errors import HanmeError
from hanme.graph.features import Features

Size = Annotated[int, Field(ge=0, lt=2**48)]
Whole = ("uint8", "int16", "int32", "int64")
Real = ("float16", "float32", "float64")
WRONG = "not the manifest of a stored graph"
PROVENANCE = ("fitted", "dropped_links", "notes", "digest", "left_out_metapaths")
"""The fields of a graph's provenance that are in the manifest."""


class Part(Closed):
    """Base class of what a manifest holds."""

    model_config = ConfigDict(strict=True)


class Array(Part):
    """A file with numbers."""

    name: str = Field(pattern=r"^[a-z0-9.]+$")
    dtype: Literal["uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
    shape: list[Size] = Field(min_length=1, max_length=2)


class NodeType(Part):
    """A node type."""

    nodes: Size
    width: Size | None
    named_by_id: bool


class Manifest(Part):
    """All that is not in arrays."""

    version: int = Field(alias="hanme store")
    target: str
    labels: list[str]
    types: dict[str, NodeType]
    relations: list[Annotated[list[str], Field(min_length=3, max_length=3)]]
    metapaths: list[str]
    left_out_metapaths: dict[str, str]
    fitted: dict[str, Any] | None
    dropped_links: dict[str, int]
    notes: list[str]
    digest: str | None
    features: Features
    files: list[Array]
    checksums: int


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a store; refuse one that storing a graph cannot have written."""
    path = folder / MANIFEST
    values = read_json(path)
    checksum, version = values.pop("checksum", None), values.get("hanme store")
    if version not in (None, VERSION):
        raise HanmeError(f"{path}: version {version}, but this hanme reads {VERSION}")
    if checksum != checksum_of(values):
        raise HanmeError(f"{path}: not the whole manifest of a stored graph; store it again")
    manifest = validated(Manifest, values, f"{path}: {WRONG}")
    for kind in (manifest.target, *(kind for e in manifest.relations for kind in e[::2])):
        if kind not in manifest.types:
            raise HanmeError(f"{path}: {WRONG}: no node type {kind!r}")
    return manifest


def open_files(folder: Path) -> tuple[Manifest, dict[str, Mapped]]:
    """Return the manifest and the files of a store, which fit to each other; no data is read."""
    manifest = read_manifest(folder)
    entries = [entry.model_dump() for entry in manifest.files]
    files = map_files(folder, entries, manifest.checksums)
    _check(manifest, Files(files, str(folder / MANIFEST)))
    return manifest, files


class Files:
    """The files of a store by name, to be compared with its manifest, which messages name."""

    def __init__(self, files: Mapping[str, Mapped], where: str) -> None:
        self.files, self.where = files, where

    def size(self, name: str) -> int:
        """Return the number of rows of a file that has to be there."""
        if name not in self.files:
            raise HanmeError(f"{self.where}: it names no file {name}.bin; store the graph again")
        return len(self.files[name])

    def expect(
        self,
        name: str,
        dtypes: tuple[str, ...],
        *shape: int,
        least: int = 0,
        below: int | None = None,
        rising: bool = False,
    ) -> None:
        """Refuse a file of another shape or type; its numbers are compared when they are read."""
        self.size(name)
        file = self.files[name]
        if file.shape != shape or file.dtype not in dtypes:
            raise HanmeError(
                f"{file.path}: {file.dtype} {list(file.shape)}, but the manifest asks for "
                f"{' or '.join(dtypes)} {list(shape)}; store the graph again"
            )
        if below is not None:
            file.bound(least, below, rising=rising)

    def rising(self, begin: str, rows: int, total: int) -> None:
        """Expect where each of some rows begins among so many numbers, and where the last ends."""
        self.expect(begin, ("int64",), rows + 1, below=total + 1, rising=True)


def _check(manifest: Manifest, there: Files) -> None:
    sizes = {kind: about.nodes for kind, about in manifest.types.items()}
    for i, about in enumerate(manifest.types.values()):
        _check_nodes(there, f"nodes.{i}", about)
    for i, (source, _, target) in enumerate(manifest.relations):
        links = there.size(f"links.{i}.end")
        there.rising(f"links.{i}.begin", sizes[source], links)
        there.expect(f"links.{i}.end", Whole, links, below=sizes[target])
    size, labels = sizes[manifest.target], len(manifest.labels)
    there.size("y")
    if len(there.files["y"].shape) == 2:
        there.expect("y", Whole, size, labels, below=2)
    else:
        there.expect("y", Whole, size, least=-1, below=labels)
    there.expect("part", ("uint8",), size)


def _check_nodes(there: Files, start: str, about: NodeType) -> None:
    size = about.nodes
    for texts in (f"{start}.ids", f"{start}.names"):
        if f"{texts}.text" in there.files:
            length = there.size(f"{texts}.text")
            there.expect(f"{texts}.text", ("uint8",), length)
            there.rising(f"{texts}.offsets", size, length)
            there.expect(f"{texts}.hash", ("int64",), size)
            there.expect(f"{texts}.order", Whole, size, below=size)
    if about.width is None:
        return
    if f"{start}.x" in there.files:
        there.expect(f"{start}.x", Real, size, about.width)
        return
    numbers = there.size(f"{start}.value")
    there.rising(f"{start}.begin", size, numbers)
    there.expect(f"{start}.column", Whole, numbers, below=about.width)
    there.expect(f"{start}.value", Real, numbers)

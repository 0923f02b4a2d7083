"""The manifest of a store, and whether its files are what it describes.

Checksums find damage. These checks find what was never valid: numbers that lead out of an array.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from hanme.common.files import read_json
from hanme.common.options import Closed, validated
from hanme.data.store.files import MANIFEST, MARKER, VERSION, MappedArray, map_arrays
from hanme.errors import HanmeError
from hanme.graph.features import Features

Size = Annotated[int, Field(ge=0, lt=2**48)]
INTEGERS = ("uint8", "int16", "int32", "int64")
FLOATS = ("float16", "float32", "float64")
PROVENANCE = ("fitted", "dropped_links", "notes", "digest", "left_out_metapaths")
"""The fields of a graph's provenance that are in the manifest."""


class Section(Closed):
    """Base class of the parts of a manifest."""

    model_config = ConfigDict(strict=True)


class ArrayFile(Section):
    """The file of an array."""

    name: str = Field(pattern=r"^[a-z0-9.]+$")
    dtype: Literal["uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
    shape: list[Size] = Field(min_length=1, max_length=2)


class NodeType(Section):
    """A node type."""

    nodes: Size
    width: Size | None
    named_by_id: bool
    extra: list[str]


class Manifest(Section):
    """Everything that is not in arrays."""

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
    files: list[ArrayFile]
    checksums: int


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a store; refuse one that storing a graph cannot have written."""
    path = folder / MANIFEST
    values = read_json(path)
    if values.get(MARKER) not in (None, VERSION):
        raise HanmeError(f"{path}: version {values[MARKER]}, but this hanme reads {VERSION}")
    manifest = validated(Manifest, values, f"{path}: not the manifest of a stored graph")
    for kind in (manifest.target, *(kind for e in manifest.relations for kind in e[::2])):
        if kind not in manifest.types:
            raise HanmeError(f"{path}: no node type {kind!r}; store the graph again")
    return manifest


def open_arrays(folder: Path) -> tuple[Manifest, dict[str, MappedArray]]:
    """Return the manifest and the arrays of a store, which match; no data is read."""
    manifest = read_manifest(folder)
    entries = [entry.model_dump() for entry in manifest.files]
    arrays = map_arrays(folder, entries, manifest.checksums)
    _Checker(arrays, folder / MANIFEST).check(manifest)
    return manifest, arrays


class _Checker:
    """Compare the arrays of a store with its manifest; numbers are compared when they are read."""

    def __init__(self, arrays: dict[str, MappedArray], path: Path) -> None:
        self.arrays, self.path = arrays, path

    def check(self, manifest: Manifest) -> None:
        sizes = {kind: about.nodes for kind, about in manifest.types.items()}
        for i, about in enumerate(manifest.types.values()):
            self._check_nodes(f"nodes.{i}", about)
        for i, (source, _, target) in enumerate(manifest.relations):
            links = self._rows(f"links.{i}.end")
            self._expect_offsets(f"links.{i}.begin", sizes[source], links)
            self._expect(f"links.{i}.end", INTEGERS, links).require(0, sizes[target])
        size, labels = sizes[manifest.target], len(manifest.labels)
        self._rows("y")
        if len(self.arrays["y"].shape) == 2:
            self._expect("y", INTEGERS, size, labels).require(0, 2)
        else:
            self._expect("y", INTEGERS, size).require(-1, labels)
        self._expect("part", ("uint8",), size)

    def _check_nodes(self, name: str, about: NodeType) -> None:
        size = about.nodes
        for key in about.extra:
            self._expect(f"{name}.extra.{key}", ("int64",), size)
        for texts in (f"{name}.ids", f"{name}.names"):
            if f"{texts}.text" in self.arrays:
                length = self._rows(f"{texts}.text")
                self._expect(f"{texts}.text", ("uint8",), length)
                self._expect_offsets(f"{texts}.offsets", size, length)
                self._expect(f"{texts}.hash", ("int64",), size)
                self._expect(f"{texts}.order", INTEGERS, size).require(0, size)
        if about.width is None:
            return
        if f"{name}.x" in self.arrays:
            self._expect(f"{name}.x", FLOATS, size, about.width)
            return
        values = self._rows(f"{name}.value")
        self._expect_offsets(f"{name}.begin", size, values)
        self._expect(f"{name}.column", INTEGERS, values).require(0, about.width)
        self._expect(f"{name}.value", FLOATS, values)

    def _rows(self, name: str) -> int:
        if name not in self.arrays:
            raise HanmeError(f"{self.path}: no file {name}.bin; store the graph again")
        return len(self.arrays[name])

    def _expect(self, name: str, dtypes: tuple[str, ...], *shape: int) -> MappedArray:
        self._rows(name)
        array = self.arrays[name]
        if array.shape != shape or array.dtype not in dtypes:
            raise HanmeError(
                f"{array.path}: {array.dtype} {list(array.shape)}, but {self.path.name} requires "
                f"{' or '.join(dtypes)} {list(shape)}; store the graph again"
            )
        return array

    def _expect_offsets(self, name: str, rows: int, total: int) -> None:
        """Expect where each row begins among ``total`` numbers, and where the last ends."""
        self._expect(name, ("int64",), rows + 1).require(0, total + 1, ascending=True)

"""The manifest of a store, and whether its files are what it describes.

Checksums find damage. These checks find what was never valid: numbers that lead out of an array.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from hanme.common.files import read_json
from hanme.common.options import Closed, validated
from hanme.data.store.files import BLOCK, MANIFEST, ArrayFile, MappedArray, Size
from hanme.errors import HanmeError
from hanme.graph.features import Features

PROVENANCE = ("fitted", "dropped_links", "notes", "digest", "left_out_metapaths", "display")
"""The fields of a graph's provenance that are in the manifest."""


class NodeType(Closed):
    """A node type."""

    nodes: Size
    width: Size | None
    named_by_id: bool
    extra: list[str]


class Manifest(Closed):
    """Everything that is not in arrays."""

    version: Literal[4] = Field(alias="hanme store")
    target: str
    labels: list[str]
    types: dict[str, NodeType]
    relations: list[tuple[str, str, str]]
    metapaths: list[str]
    left_out_metapaths: dict[str, str]
    fitted: dict[str, Any] | None
    dropped_links: dict[str, int]
    notes: list[str]
    digest: str | None
    display: dict[str, dict[str, Any]] = Field(default={})
    features: Features
    files: dict[Annotated[str, Field(pattern=r"^[a-z0-9.]+$")], ArrayFile]


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a store; refuse one that storing a graph cannot have written."""
    path = folder / MANIFEST
    manifest = validated(Manifest, read_json(path), f"{path}: not the manifest of a stored graph")
    for kind in (manifest.target, *(kind for e in manifest.relations for kind in e[::2])):
        if kind not in manifest.types:
            raise HanmeError(f"{path}: no node type {kind!r}; store the graph again")
    return manifest


def open_arrays(folder: Path, *, mapped: bool = True) -> tuple[Manifest, dict[str, MappedArray]]:
    """Return the manifest and the arrays of a store, which match."""
    manifest, arrays = read_manifest(folder), {}
    for name, about in manifest.files.items():
        path, size = folder / f"{name}.bin", about.nbytes
        if not path.exists() or path.stat().st_size != size:
            raise HanmeError(f"{path}: not a file of {size:,} bytes; store the graph again")
        if len(about.checksums) != -(-size // BLOCK):
            raise HanmeError(f"{folder / MANIFEST}: {name}: expected a checksum per block")
        arrays[name] = MappedArray(path, about, mapped=mapped)
    _check(manifest, arrays, folder / MANIFEST)
    return manifest, arrays


def _check(manifest: Manifest, arrays: dict[str, MappedArray], path: Path) -> None:
    """Compare arrays with the manifest; numbers are compared when they are read."""

    def rows(name: str) -> int:
        return len(arrays[name]) if name in arrays else 0

    def expect(name: str, dtype: str, *shape: int) -> MappedArray:
        array = arrays.get(name)
        if array is None or array.shape != shape or not array.about.dtype.startswith(dtype):
            wanted = f"{dtype} {list(shape)}"
            raise HanmeError(f"{path}: {name}.bin: expected {wanted}; store the graph again")
        return array

    def expect_offsets(name: str, size: int, total: int) -> None:
        expect(name, "int64", size + 1).require(0, total + 1, ascending=True)

    for i, about in enumerate(manifest.types.values()):
        name, size = f"nodes.{i}", about.nodes
        for key in about.extra:
            expect(f"{name}.extra.{key}", "int64", size)
        for texts in (f"{name}.ids", f"{name}.names"):
            if f"{texts}.text" in arrays:
                length = rows(f"{texts}.text")
                expect(f"{texts}.text", "uint8", length)
                expect_offsets(f"{texts}.offsets", size, length)
        if about.width is not None and f"{name}.x" in arrays:
            expect(f"{name}.x", "float32", size, about.width)
        elif about.width is not None:
            values = rows(f"{name}.value")
            expect_offsets(f"{name}.begin", size, values)
            expect(f"{name}.column", "int", values).require(0, about.width)
            expect(f"{name}.value", "float32", values)
    for i, (source, _, target) in enumerate(manifest.relations):
        links = rows(f"links.{i}.end")
        expect_offsets(f"links.{i}.begin", manifest.types[source].nodes, links)
        expect(f"links.{i}.end", "int", links).require(0, manifest.types[target].nodes)
    size, labels = manifest.types[manifest.target].nodes, len(manifest.labels)
    if "y" in arrays and len(arrays["y"].shape) == 2:
        expect("y", "uint8", size, labels).require(0, 2)
    else:
        expect("y", "int32", size).require(-1, labels)
    expect("part", "uint8", size)

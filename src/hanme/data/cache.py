"""Keep a parsed graph as one safetensors file: arrays, and JSON in the header about them."""

from __future__ import annotations

import json
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from scipy.sparse import csr_array

from hanme.common.files import replacing
from hanme.graph import EdgeType, Graph, Nodes, Provenance, Split, Texts
from hanme.graph.features import to_scipy, to_torch
from hanme.graph.splits import PARTS

VERSION = 5
PROVENANCE = ("fitted", "dropped_links", "notes", "digest")
"""The attributes of a graph that are in the header as they are."""

Arrays = dict[str, NDArray[Any]]


class DamagedCache(Exception):
    """A cache file that cannot be read, or that is not what was written."""


def write_cache(graph: Graph, path: Path, fingerprint: str) -> None:
    """Write a graph to `path`, marked with the `fingerprint` of the files it was parsed from.

    If it cannot be written, a warning says so: the files are then parsed again the next time.
    """
    y = graph.y.numpy()
    arrays: Arrays = {"y": y.astype(np.uint8) if graph.multilabel else y}
    arrays |= {part: mask.numpy() for part, mask in graph.split.parts().items()}
    for i, nodes in enumerate(graph.nodes.values()):
        for key, texts in (("names", nodes.names), ("ids", nodes.ids)):
            if texts is not None:
                held = Texts.of(texts)
                arrays |= {f"{key}.{i}.text": held.text, f"{key}.{i}.offsets": held.offsets}
        arrays |= {f"extra.{i}.{key}": value.numpy() for key, value in nodes.extra.items()}
        if nodes.x is not None:
            x = to_scipy(nodes.x)
            arrays |= {f"x.{i}.{part}": getattr(x, part) for part in ("data", "indices", "indptr")}
    for i, links in enumerate(graph.links.values()):
        arrays[f"links.{i}"] = links.numpy()
    arrays = {key: np.ascontiguousarray(_compact(array)) for key, array in arrays.items()}

    header = {
        "version": VERSION,
        "fingerprint": fingerprint,
        "types": graph.sizes,
        "widths": graph.widths,
        "relations": list(graph.links),
        "target": graph.target,
        "labels": graph.labels,
        **{key: getattr(graph.provenance, key) for key in PROVENANCE},
    }
    header["checksum"] = _checksum(header, arrays)
    try:
        with replacing(path) as part:
            save_file(arrays, part, metadata={"hanme": json.dumps(header)})
    except (OSError, SafetensorError) as error:
        warnings.warn(f"{path} cannot be written, so the next start is slow: {error}", stacklevel=4)


def read_cache(path: Path, fingerprint: str | None = None) -> Graph | None:
    """Read a graph that :func:`write_cache` wrote.

    Returns:
        The graph, or None if there is no file, or one of another format version, or one whose
        fingerprint is not the one given, if one is given.

    Raises:
        DamagedCache: If the file is not what was written.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads(file.metadata()["hanme"])
            if header["version"] != VERSION:
                return None
            if fingerprint not in (None, header["fingerprint"]):
                return None
            arrays: Arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if header.pop("checksum") != _checksum(header, arrays):
            raise DamagedCache("its checksum does not match")
        return _graph(header, arrays)
    except FileNotFoundError:
        return None
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedCache(str(error)) from error


def _graph(header: dict[str, Any], arrays: Arrays) -> Graph:
    nodes = {}
    for i, (kind, size) in enumerate(header["types"].items()):
        names, ids = (
            Texts(arrays[f"{key}.{i}.text"], arrays[f"{key}.{i}.offsets"])
            if f"{key}.{i}.text" in arrays
            else None
            for key in ("names", "ids")
        )
        x = None
        if kind in header["widths"]:
            parts = tuple(arrays[f"x.{i}.{part}"] for part in ("data", "indices", "indptr"))
            x = to_torch(csr_array(parts, shape=(size, header["widths"][kind])))
        start = f"extra.{i}."
        extra = {
            key.removeprefix(start): torch.from_numpy(array.astype(np.int64))
            for key, array in arrays.items()
            if key.startswith(start)
        }
        nodes[kind] = Nodes(kind, size, x, names, ids, extra)
    relations: list[tuple[int, EdgeType]] = [
        (i, tuple(relation)) for i, relation in enumerate(header["relations"])
    ]
    y = torch.from_numpy(arrays["y"])
    return Graph(
        nodes=nodes,
        links={e: torch.from_numpy(arrays[f"links.{i}"].astype(np.int64)) for i, e in relations},
        y=y.float() if y.dim() == 2 else y.long(),
        split=Split(*(torch.from_numpy(arrays[part]) for part in PARTS)),
        target=header["target"],
        labels=header["labels"],
        provenance=Provenance(**{key: header[key] for key in PROVENANCE}),
    )


def _compact(array: NDArray[Any]) -> NDArray[Any]:
    """Take half the space for integers that fit."""
    fits = array.dtype == np.int64 and (not array.size or array.max() <= np.iinfo(np.int32).max)
    return array.astype(np.int32) if fits else array


def _checksum(header: dict[str, Any], arrays: Arrays) -> int:
    checksum = zlib.crc32(json.dumps(header).encode())
    for key in sorted(arrays):
        checksum = zlib.crc32(arrays[key].data, zlib.crc32(key.encode(), checksum))
    return checksum

"""A parsed graph kept as one safetensors file: arrays, and what they mean as JSON in the header."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from scipy.sparse import csr_array

from hanme.datasets.graph import Graph
from hanme.datasets.strings import Strings
from hanme.files import replacing

VERSION = 2

Arrays = dict[str, NDArray[Any]]


class DamagedCache(Exception):
    """A cache file that cannot be read, or that is not what was written."""


def save_graph(graph: Graph, path: Path, fingerprint: str) -> None:
    """Writes a graph to `path`, marked with the `fingerprint` of what it was parsed from."""
    arrays: Arrays = {
        "y": graph.y,
        "labelled": graph.labelled,
        "test": graph.test,
    }
    if graph.val is not None:
        arrays["val"] = graph.val
    for key, by_type in (("names", graph.names), ("ids", graph.ids)):
        for i, texts in enumerate(by_type.values()):
            strings = texts if isinstance(texts, Strings) else Strings.of(texts)
            arrays[f"{key}.{i}.text"] = strings.text
            arrays[f"{key}.{i}.offsets"] = strings.offsets
    for kind, x in graph.features.items():
        i = list(graph.names).index(kind)
        arrays |= {f"x.{i}.data": x.data, f"x.{i}.indices": x.indices, f"x.{i}.indptr": x.indptr}
    for i, (relation, links) in enumerate(graph.links.items()):
        arrays[f"links.{i}"] = links
        if relation in graph.weights:
            arrays[f"weights.{i}"] = graph.weights[relation]
    arrays = {key: np.ascontiguousarray(_compact(array)) for key, array in arrays.items()}

    header = {
        "version": VERSION,
        "fingerprint": fingerprint,
        "types": list(graph.names),
        "widths": {kind: x.shape[1] for kind, x in graph.features.items()},
        "relations": list(graph.links),
        "target": graph.target,
        "label_names": graph.label_names,
        "multilabel": graph.multilabel,
        "info": graph.info,
    }
    header["checksum"] = _checksum(header, arrays)
    with replacing(path) as part:
        save_file(arrays, part, metadata={"hanme": json.dumps(header)})


def load_graph(path: Path, fingerprint: str | None = None) -> Graph | None:
    """Reads a graph that :func:`save_graph` wrote.

    Returns:
        The graph, or None if there is no file, or one of another format version, or one that was
        parsed from something else than what `fingerprint` (if given) stands for.

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
    texts: dict[str, dict[str, Strings]] = {"names": {}, "ids": {}}
    features = {}
    for i, kind in enumerate(header["types"]):
        for part, by_type in texts.items():
            if f"{part}.{i}.text" in arrays:
                by_type[kind] = Strings(arrays[f"{part}.{i}.text"], arrays[f"{part}.{i}.offsets"])
        if kind in header["widths"]:
            parts = tuple(arrays[f"x.{i}.{part}"] for part in ("data", "indices", "indptr"))
            features[kind] = csr_array(
                parts, shape=(len(texts["names"][kind]), header["widths"][kind])
            )
    relations = [(i, tuple(relation)) for i, relation in enumerate(header["relations"])]
    return Graph(
        names=texts["names"],
        ids=texts["ids"],
        features=features,
        links={relation: arrays[f"links.{i}"] for i, relation in relations},
        weights={r: arrays[f"weights.{i}"] for i, r in relations if f"weights.{i}" in arrays},
        target=header["target"],
        label_names=header["label_names"],
        multilabel=header["multilabel"],
        y=arrays["y"],
        labelled=arrays["labelled"],
        test=arrays["test"],
        val=arrays.get("val"),
        info=header["info"],
    )


def _compact(array: NDArray[Any]) -> NDArray[Any]:
    fits = array.dtype == np.int64 and (not array.size or array.max() <= np.iinfo(np.int32).max)
    return array.astype(np.int32) if fits else array


def _checksum(header: dict[str, Any], arrays: Arrays) -> int:
    checksum = zlib.crc32(json.dumps(header).encode())
    for key in sorted(arrays):
        checksum = zlib.crc32(arrays[key].data, zlib.crc32(key.encode(), checksum))
    return checksum

"""What the features of a user's own tables are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def feature_names(fitted: Mapping[str, Any] | None, node_type: str) -> list[str]:
    """Name each feature of a node type by what was learnt from its columns, ``Graph.fitted``.

    Without columns there are no names.
    """
    columns = (fitted or {}).get("features", {}).get(node_type, {})
    names: list[str] = []
    for column, learnt in columns.items():
        if "values" in learnt or "words" in learnt:
            names += [f"{column}: {value}" for value in learnt.get("values", learnt.get("words"))]
        elif "size" in learnt:
            names += [f"{column}: bucket {i}" for i in range(learnt["size"])]
        elif isinstance(learnt.get("mean"), list):
            names += [f"{column}[{i}]" for i in range(len(learnt["mean"]))]
        else:
            names.append(column)
    return names

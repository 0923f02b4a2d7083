"""Make a graph from tables in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanme.common.files import whole
from hanme.data.tables.build.load import Tables
from hanme.data.tables.draft.infer import infer_frames
from hanme.data.tables.schema.config import FILE, check_config, read_config
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import Features


def load_frames(
    frames: Mapping[str, Any],
    config: Mapping[str, Any] | str | Path | None = None,
    *,
    label: str | None = None,
    features: Features = "given",
    seed: int = 0,
) -> Graph:
    """Make a graph from frames, see :meth:`hanme.graph.Graph.from_frames`."""
    if not frames or not all(isinstance(name, str) and name for name in frames):
        raise HanmeError("Expected `frames` to be tables by name, such as {'films': films}")
    path = Path.cwd() / FILE
    if config is not None and label is not None:
        raise HanmeError("`label` is for a guess; a configuration names the label itself")
    if isinstance(config, str | Path):
        path = whole(config)
        checked = read_config(path)
    elif config is not None:
        checked = check_config(dict(config), "config")
    else:
        checked = infer_frames(frames, label).config
    return Tables.find(checked, path, frames=frames).load(features, seed)

"""Make a graph from tables in memory."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanme.common.files import whole
from hanme.data.tables.build.load import Tables
from hanme.data.tables.draft.draft import write_text
from hanme.data.tables.draft.inference import guess_tables
from hanme.data.tables.read.discover import Found
from hanme.data.tables.schema.config import FILE, GraphConfig, check_config, read_config
from hanme.data.tables.schema.sections import Source
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
        checked = _guessed(frames, label)
    return Tables.find(checked, path, frames=frames).load(features, seed)


def _guessed(frames: Mapping[str, Any], label: str | None) -> GraphConfig:
    found = [Found(name, Source(table=name)) for name in frames]
    text = write_text(guess_tables(found, Path.cwd(), frames=frames, label=label))
    return GraphConfig.model_validate(tomllib.loads(text))

"""Configuration files: a run's configuration as TOML, one per model and graph.

Those of the package are ``MODEL-GRAPH.toml`` beside this file, such as ``hanme-direct-IMDB.toml``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanme.datasets import METAPATHS, known_name
from hanme.errors import HanmeError
from hanme.toml import read_toml
from hanme.training import RunConfig

PACKAGED = Path(__file__).parent


def packaged() -> list[str]:
    """The names of the configurations in the package, such as ``han-IMDB``."""
    return sorted(path.stem for path in PACKAGED.glob("*-*.toml"))


def models(graph: str) -> list[str]:
    """The models with a packaged configuration for a graph."""
    end = f"-{known_name(graph)}"
    return sorted(name.removesuffix(end) for name in packaged() if name.endswith(end))


def find_config(name: str, folder: Path | None = None) -> Path:
    """The file of a configuration: a path to one, or a name.

    Args:
        name: ``path/to/a.toml``, or a name such as ``han-IMDB``.
        folder: Where files are that take the place of the package's.
    """
    if name.endswith(".toml") or len(Path(name).parts) > 1:
        return Path(name)
    for place in (folder, PACKAGED):
        if place is not None and (place / f"{name}.toml").exists():
            return place / f"{name}.toml"
    raise HanmeError(f"no configuration {name!r}; there are {', '.join(packaged())}")


def read_config(path: Path) -> dict[str, Any]:
    """The values of a configuration file, checked; a mistake names file and field."""
    values = read_toml(path)
    RunConfig.make(values, str(path))
    return values


def changed_config(
    model: str, graph: str, folder: Path | None, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of the configuration of a model on a graph with ``changes`` by field, checked.

    An experiment is named after its model and graph and draws its own seeds: the file must be of
    these, and nothing changes them.
    """
    if graph not in METAPATHS:
        raise HanmeError(f"no configuration for {graph}; there are some for {', '.join(METAPATHS)}")
    name = f"{model}-{graph}"
    path = find_config(name, folder)
    for field in ("data.name", "model.name", "training.seed"):
        if field in changes:
            raise HanmeError(f"--set {field}: it is fixed here; {name} and --seeds say what it is")
    values = override(read_config(path), changes)
    config = RunConfig.make(values, str(path))
    if known_name(config.data.name) != graph:
        raise HanmeError(
            f"{path}: data.name: {config.data.name}, but the file is named for {graph}"
        )
    if not f"{model}-".startswith(f"{config.model.name}-"):
        raise HanmeError(f"{path}: model.name: {config.model.name}, but the file is for {model}")
    return values


def override(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with fields such as ``training.lr`` or ``model.options.heads`` set to other values."""
    changed = copy.deepcopy(dict(values))
    for field, value in changes.items():
        *tables, key = field.split(".")
        place = changed
        for table in tables:
            inner = place.setdefault(table, {})
            if not isinstance(inner, dict):
                raise HanmeError(f"{field}: {table} is a value, not a table")
            place = inner
        place[key] = value
    return changed


def look_up(values: Mapping[str, Any], field: str) -> Any:
    """The value of a field such as ``training.lr``, None where there is none."""
    found: Any = values
    for key in field.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found

"""Configuration files: a run's configuration as TOML, one per model and graph.

Those of the package are ``MODEL-GRAPH.toml`` beside this file, such as ``hanme-direct-IMDB.toml``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanme.datasets import is_tables, known_name
from hanme.datasets.tables_config import FILE
from hanme.errors import HanmeError
from hanme.toml import read_toml
from hanme.training import RunConfig, with_metapaths

PACKAGED = Path(__file__).parent


def packaged() -> list[str]:
    """The names of the configurations in the package, such as ``han-IMDB``."""
    return sorted(path.stem for path in PACKAGED.glob("*-*.toml"))


def models(graph: str, folder: Path | None = None) -> list[str]:
    """The models with a configuration for a graph, in the package or a folder of one's own; for
    tables of one's own, which the package cannot know, all of them."""
    end = f"-{graph_name(graph)}"
    own = [path for path in (folder.glob("*-*.toml") if folder else ()) if _is_for(path, graph)]
    files = packaged() + [path.stem for path in own]
    found = {name.removesuffix(end) for name in files if name.endswith(end)}
    return sorted(found | set(models("planted"))) if is_tables(graph) else sorted(found)


def _is_for(path: Path, graph: str) -> bool:
    """Whether a file is of no other graph, such as ``my-films`` where ``films`` is asked for."""
    name = look_up(read_toml(path), "data.name")
    return not isinstance(name, str) or known_name(name) == known_name(graph)


def graph_name(graph: str) -> str:
    """What a graph is called in names of files: itself, or of a ``graph.toml`` its folder."""
    if not is_tables(graph):
        return known_name(graph)
    path = Path(known_name(graph))
    return re.sub(r"[^\w-]+", "-", path.parent.name if path.name == FILE else path.stem) or "graph"


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
    name = f"{model}-{graph_name(graph)}"
    for field in ("data.name", "data.seed", "model.name", "training.seed"):
        if field in changes:
            raise HanmeError(f"--set {field}: it is fixed here; {name} and --seeds say what it is")
    if is_tables(graph) and not (folder and (folder / f"{name}.toml").exists()):
        where, values = name, _defaults(model, graph)
    else:
        path = find_config(name, folder)
        where, values = str(path), read_config(path)
    values = override(values, changes)
    config = RunConfig.make(values, where)
    if known_name(config.data.name) != known_name(graph):
        raise HanmeError(
            f"{where}: data.name: {config.data.name}, but the file is named for {graph}"
        )
    if not f"{model}-".startswith(f"{config.model.name}-"):
        raise HanmeError(f"{where}: model.name: {config.model.name}, but the file is for {model}")
    return override(values, {"data.name": known_name(graph)})


def _defaults(model: str, graph: str) -> dict[str, Any]:
    """What ``hanme train`` would take for a model, such as ``hanme-direct``, on tables."""
    if model not in models("planted"):
        raise HanmeError(f"unknown model {model!r}; there are {', '.join(models('planted'))}")
    name, _, encoder = model.partition("-")
    options = with_metapaths(name, graph, {"encoder": encoder} if encoder else {})
    values = {"data": {"name": known_name(graph)}, "model": {"name": name, "options": options}}
    config = RunConfig.make(values)
    return config.model_dump(exclude={"training": {"seed"}}, exclude_none=True)


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

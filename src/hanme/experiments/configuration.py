"""Configuration files: the configuration of a run as TOML, and how it is resolved.

The packaged files are ``configs/MODEL-GRAPH.toml``, such as ``hanme-direct-IMDB.toml``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanme.common.options import DEEPEST
from hanme.common.toml import read_toml
from hanme.data import METAPATHS, is_tables, known_name
from hanme.data.tables.build.load import is_large
from hanme.data.tables.schema.config import FILE
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.runs import RunConfig, load_graph, takes_metapaths, with_metapaths
from hanme.training.batches import SHARED

CONFIGS = Path(__file__).parent / "configs"
FIXED = ("data.name", "data.seed", "model.name", "training.seed")
"""Fields that an experiment sets itself."""
LARGE = {"training.batch_size": SHARED, "training.linear": False}
"""Defaults for tables that were stored for their size: batches, and no linear part."""


def packaged() -> list[str]:
    """Return the names of the packaged configurations, such as ``han-IMDB``."""
    return sorted(path.stem for path in CONFIGS.glob("*-*.toml"))


def models(graph: str, folder: Path | None = None) -> list[str]:
    """Return the models that have a configuration for a graph, packaged or in a folder.

    A user's own tables need no file: all packaged models can be trained on them.
    """
    own = [path.stem for path in folder.glob("*-*.toml")] if folder else []
    end, names = f"-{graph_name(graph)}", [*packaged(), *own]
    listed = {name.removesuffix(end) for name in names if name.endswith(end)}
    return sorted(listed | set(models("planted"))) if is_tables(graph) else sorted(listed)


def graph_name(graph: str) -> str:
    """Return the name of a graph in file names: its own, or the folder of its ``graph.toml``."""
    if not is_tables(graph):
        return known_name(graph)
    path = Path(known_name(graph))
    return re.sub(r"[^\w-]+", "-", path.parent.name if path.name == FILE else path.stem) or "graph"


def find_config(name: str, folder: Path | None = None) -> Path:
    """Find a configuration file by path or name, such as ``han-IMDB``, first in ``folder``."""
    if name.endswith(".toml") or len(Path(name).parts) > 1:
        return Path(name)
    for place in (folder, CONFIGS):
        if place is not None and (place / f"{name}.toml").exists():
            return place / f"{name}.toml"
    raise HanmeError(f"no configuration {name!r}; there are {', '.join(packaged())}")


def read_config(path: Path) -> dict[str, Any]:
    """Read and check a configuration file; a mistake is reported with file and field."""
    values = read_toml(path)
    RunConfig.make(values, str(path))
    return values


def changed_config(
    model: str, graph: str, folder: Path | None, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Read the configuration of a model on a graph, change some fields and check the result.

    Files in ``folder`` replace the packaged ones; a user's own tables need no file.
    """
    name = f"{model}-{graph_name(graph)}"
    refuse_fixed(changes, f"{name} and --seeds set it")
    if is_tables(graph) and not (folder and (folder / f"{name}.toml").exists()):
        where, values = name, _defaults(model, graph)
    else:
        path = find_config(name, folder)
        where, values = str(path), read_config(path)
    values = override(values, changes)
    config, name = RunConfig.make(values, where), known_name(graph)
    if known_name(config.data.name) != name:
        raise HanmeError(f"{where}: data.name: {config.data.name}, but the file is for {graph}")
    if not f"{model}-".startswith(f"{config.model.name}-"):
        raise HanmeError(f"{where}: model.name: {config.model.name}, but the file is for {model}")
    return override(values, {"data.name": name})


def refuse_fixed(changes: Mapping[str, Any], why: str) -> None:
    """Refuse to change a field that an experiment sets itself."""
    for field in set(FIXED) & changes.keys():
        raise HanmeError(f"--set {field}: it cannot be changed here; {why}")


def resolve(
    values: Mapping[str, Any], where: str = "configuration"
) -> tuple[RunConfig, Graph | None]:
    """Resolve a configuration: the full name of its graph, default metapaths, batches if large.

    Returns:
        The configuration, and the graph if it had to be loaded: the default metapaths of a user's
        own tables depend on the number of their instances.
    """
    name = known_name(str(look_up(values, "data.name")))
    values = override(values, {"data.name": name})
    model = str(look_up(values, "model.name") or "hanme")
    options = look_up(values, "model.options") or {}
    if not isinstance(options, dict):
        raise HanmeError(f"model.options: expected a table of options, but got {options!r}")
    graph, large = None, False
    if not takes_metapaths(model):
        pass
    elif "metapaths" in options:
        large = is_tables(name) and is_large(str(look_up(values, "data.source") or name))
    elif name in METAPATHS:
        values = override(values, {"model.options.metapaths": METAPATHS[name]})
    else:
        graph = load_graph(RunConfig.make(override(values, {"model": {"name": "linear"}}), where))
        recipe = str(look_up(values, "training.recipe") or "default")
        model, options = with_metapaths(model, options, graph, recipe=recipe)
        values = override(values, {"model.name": model, "model.options": options})
        large = graph.stored and is_tables(name)
    defaults = {"model.name": model} | (LARGE if large else {})
    unset = {field: value for field, value in defaults.items() if look_up(values, field) is None}
    return RunConfig.make(override(values, unset), where), graph


def _defaults(model: str, graph: str) -> dict[str, Any]:
    """Return the configuration of ``hanme train`` for a model such as ``hanme-direct``."""
    if model not in models("planted"):
        raise HanmeError(f"unknown model {model!r}; there are {', '.join(models('planted'))}")
    name, _, encoder = model.partition("-")
    options = {"encoder": encoder} if encoder else {}
    values = {"data": {"name": graph}, "model": {"name": name, "options": options}}
    config, _ = resolve(values, model)
    return config.model_dump(exclude={"training": {"seed"}}, exclude_none=True)


def override(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with new values in fields such as ``model.options.heads``."""
    changed = copy.deepcopy(dict(values))
    for field, value in changes.items():
        *tables, key = field.split(".")
        if len(tables) > DEEPEST:
            raise HanmeError(f"{field[:50]}...: no field is nested {len(tables)} deep")
        place = changed
        for table in tables:
            inner = place.setdefault(table, {})
            if not isinstance(inner, dict):
                raise HanmeError(f"{field}: {table} is a value, not a table")
            place = inner
        place[key] = value
    return changed


def look_up(values: Mapping[str, Any], field: str) -> Any:
    """Return the value of a field such as ``training.lr``, None if it is not set."""
    value: Any = values
    for key in field.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value

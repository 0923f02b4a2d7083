"""Configuration files: the configuration of a run as TOML.

The packaged files are ``configs/MODEL-GRAPH.toml``, such as ``hanme-direct-IMDB.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanme.common.toml import read_toml
from hanme.data import is_tables, known_name
from hanme.data.tables.schema.config import FILE
from hanme.errors import HanmeError
from hanme.runs import RunConfig, resolve
from hanme.runs.config import override

CONFIGS = Path(__file__).parent / "configs"
FIXED = ("data.name", "data.seed", "model.name", "training.seed")
"""Fields that an experiment sets itself."""


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


def _defaults(model: str, graph: str) -> dict[str, Any]:
    """Return the configuration of ``hanme train`` for a model such as ``hanme-direct``."""
    if model not in models("planted"):
        raise HanmeError(f"unknown model {model!r}; there are {', '.join(models('planted'))}")
    name, _, encoder = model.partition("-")
    options = {"encoder": encoder} if encoder else {}
    values = {"data": {"name": graph}, "model": {"name": name, "options": options}}
    config, _ = resolve(values, model)
    return config.model_dump(exclude={"training": {"seed"}}, exclude_none=True)

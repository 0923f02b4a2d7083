"""Resolve a configuration, for the command line, configuration files and Python alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hanme.data import METAPATHS, is_tables, known_name
from hanme.data.tables.build.load import is_large
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.defaults import there_and_back
from hanme.runs.build import load_graph, takes_metapaths, with_metapaths
from hanme.runs.config import PYTHON, RunConfig, look_up, override
from hanme.training.batches import SHARED

LARGE = {"training.batch_size": SHARED, "training.linear": False}
"""Defaults for tables that were stored for their size: batches, and no linear part."""


def resolve(
    values: Mapping[str, Any], where: str = "configuration", *, graph: Graph | None = None
) -> tuple[RunConfig, Graph | None]:
    """Resolve a configuration: the full name of its graph, default metapaths, batches if large.

    Args:
        values: The fields that were set.
        where: What to name in errors.
        graph: The graph, if there is one already; where it came from replaces ``data``.

    Returns:
        The configuration, and the graph if it was passed or had to be loaded: the default metapaths
        of tables depend on the number of their instances.
    """
    if graph is None:
        values = override(values, {"data.name": known_name(str(look_up(values, "data.name")))})
    else:
        data = graph.provenance.origin or {"name": PYTHON, "features": "given"}
        values = override(values, {"data": data})
    name = str(look_up(values, "data.name"))
    model = str(look_up(values, "model.name") or "hanme")
    options = look_up(values, "model.options") or {}
    if not isinstance(options, dict):
        raise HanmeError(f"model.options: expected a table of options, but got {options!r}")
    large = False
    if not takes_metapaths(model):
        pass
    elif "metapaths" in options:
        source = str(look_up(values, "data.source") or name)
        large = is_tables(name) and (is_large(source) if graph is None else graph.stored)
    elif name in METAPATHS and name != "planted" and graph is None:  # small: not loaded for this
        values = override(values, {"model.options.metapaths": METAPATHS[name]})
    else:
        if graph is None:
            of_data = override(values, {"model": {"name": "linear"}})
            graph = load_graph(RunConfig.make(of_data, where))
        graph = there_and_back(graph)
        recipe = str(look_up(values, "training.recipe") or "default")
        model, options = with_metapaths(model, options, graph, recipe=recipe)
        values = override(values, {"model.name": model, "model.options": options})
        large = graph.stored and is_tables(name)
    defaults = {"model.name": model} | (LARGE if large else {})
    unset = {field: value for field, value in defaults.items() if look_up(values, field) is None}
    return RunConfig.make(override(values, unset), where), graph

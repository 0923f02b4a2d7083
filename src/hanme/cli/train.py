"""The command ``hanme train``."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanme.cli.options import changed_fields, chosen
from hanme.cli.show import (
    print_comparison,
    print_notes,
    print_scores,
    print_suspicion,
    show_stages,
)
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.runs import Run

SELECTED = {
    "macro": "largest macro F1 on validation nodes",
    "micro": "largest micro F1 on validation nodes",
    "loss": "smallest loss on validation nodes",
    "last": "the last one",
}
"""Why an epoch is the best, by ``training.select``."""


def train(
    graph: str | None = None,
    *,
    out: Path | None = None,
    resume: bool = False,
    with_: Path | None = None,
    device: str | None = None,
    json_: bool = False,
    config: str | None = None,
    changes: list[str] | None = None,
    allow: list[str] | None = None,
    **fields: Any,
) -> None:
    """Train a model and write a run folder.

    hanme train films

    hanme train IMDB --encoder direct --lts linear --out runs/direct

    hanme train --config hanme-direct-IMDB --seed 1

    Args:
        out: Run folder to write (default: runs/NAME, then runs/NAME-2, and so on).
        resume: Continue the run in --out, or the last in runs/.
        with_: CSV file of reviewed labels, with columns id and label, that are added to those of
            the data or replace them.
        config: Configuration file to start from, or the name of a packaged one, such as
            hanme-direct-IMDB; options on the command line override it.
    """
    from hanme import runs
    from hanme.common import ranks
    from hanme.common.toml import read_toml
    from hanme.experiments import configuration
    from hanme.graph.defaults import why_none
    from hanme.runs.config import override
    from hanme.runs.reviewed import read_reviewed

    if graph is None and config is None:
        raise HanmeError("no graph to train on: name one, or a --config")
    if ranks.under_torchrun() and out is None:
        raise HanmeError("torchrun restarts lost processes: name the run folder with --out")
    values = read_toml(configuration.find_config(config)) if config else {}
    changed = changed_fields(changes) | ({"data.name": graph} if graph else {}) | chosen(fields)
    if with_ is not None:
        changed["data.reviewed"] = read_reviewed(with_)
    values = override(values, changed)
    with show_stages():
        run_config, loaded = ranks.first_before_others(
            lambda: runs.resolve(values, config or "options")
        )
        name = configuration.graph_name(run_config.data.name)
        if loaded is not None and not loaded.metapaths:
            print_notes([f"{why_none(loaded)}: training {run_config.model.name} instead"])
        folder = out or runs.new_folder(name, resume=resume)
        try:
            run = runs.train(run_config, folder, graph=loaded, resume=resume, on_start=print_notes)
        finally:
            if out is None:
                with suppress(OSError):  # it is not empty, unless training failed early
                    folder.rmdir()
    if json_:
        print(json.dumps(run.result()))
    else:
        _show(run)


def _show(run: Run) -> None:
    from hanme.nn import FUSIONS, HANME, MODELS, Fusion

    result, config = run.result(), run.config
    name, options = config.model.name, config.model.options
    print_suspicion(result)
    parts = [part for part in ("test", "val", "oof") if part in result["counts"]["majority"]]
    print_scores(name, result, parts[0] if parts else "val")
    print_comparison(name, result)
    dropped = result.get("notes", [])  # why there is no network, if it was dropped
    for note in [*result.get("base_notes", []), *dropped]:
        print(note)
    if result["epochs"] and not dropped:
        why = SELECTED[config.training.select]
        print(f"Best epoch: {result['best_epoch']} of {result['epochs']} ({why}).", end=" ")
    kind = MODELS.get(name)
    fusion = options.get("fusion", "semantic")
    fuses = FUSIONS[fusion["name"] if isinstance(fusion, dict) else fusion]
    weighs = fuses.weights is not Fusion.weights  # else it is no weighted sum
    attends = isinstance(kind, type) and issubclass(kind, HANME) and weighs
    explains = attends or dropped or kind is None  # without a network
    commands = "predict, evaluate or explain" if explains else "predict or evaluate"
    print(f"The run is in {run.folder}. Next: hanme {commands}.")

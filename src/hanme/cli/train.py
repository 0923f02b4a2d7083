"""The command ``hanme train``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hanme.cli.fields import chosen, takes_fields
from hanme.cli.options import GRAPHS, Allow, Changes, Device, Json, changed_fields, config_option
from hanme.cli.show import print_baselines, print_notes, print_scores, show_epochs
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.runs import Run

FIELDS = {
    "Options": {
        "model.name": "--model",
        "model.options.metapaths": "--metapath -m",
        "training.epochs": "--epochs",
        "training.batch_size": "--batch-size",
        "model.options.per_root": "--per-root",
        "training.seed": "--seed",
    },
    "Model": {
        "model.options.encoder": "--encoder",
        "model.options.hidden_channels": "--hidden",
        "model.options.heads": "--heads",
        "model.options.dropout": "--dropout",
        "model.options.gamma": "--gamma",
        "model.options.values": "--values",
        "model.options.backend": "--backend",
    },
    "Training": {
        "training.recipe": "--recipe",
        "training.folds": "--folds",
        "training.labels": "--labels/--no-labels",
        "training.patience": "--patience",
        "training.lr": "--lr",
        "training.weight_decay": "--weight-decay",
        "training.select": "--select",
        "training.decide": "--decide",
        "training.lts.pace": "--lts",
        "training.lts.start": "--lts-start",
        "training.lts.until": "--lts-until",
    },
    "Data": {"data.features": "--features", "data.source": "--data"},
}


@takes_fields(FIELDS)
def train(
    graph: Annotated[
        str | None,
        typer.Argument(metavar="GRAPH", help=f"{GRAPHS} (default: as in --config)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Run folder to write (default: runs/NAME, then runs/NAME-2, and so on).",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out, or the last in runs/.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of folds to train at a time (default: one per core)."),
    ] = None,
    device: Device = None,
    json_: Json = False,
    config: Annotated[
        str | None,
        config_option(
            help="Configuration file to start from, or the name of a packaged one, e.g. "
            "hanme-direct-IMDB; options on the command line override it."
        ),
    ] = None,
    changes: Changes = None,
    allow: Allow = None,
    **fields: Any,
) -> None:
    """Train a model and write a run folder.

    hanme train films

    hanme train IMDB --encoder direct --lts linear --out runs/direct

    hanme train --config hanme-direct-IMDB --seed 1
    """
    from hanme import runs
    from hanme.common import ranks
    from hanme.experiments import configuration
    from hanme.graph.defaults import why_none

    if graph is None and config is None:
        raise HanmeError("no graph to train on: name one, or a --config")
    if ranks.under_torchrun() and out is None:
        raise HanmeError("torchrun restarts lost processes: name the run folder with --out")
    values = configuration.read_config(configuration.find_config(config)) if config else {}
    changed = changed_fields(changes) | ({"data.name": graph} if graph else {}) | chosen(fields)
    values = configuration.override(values, changed)
    with show_epochs() as shown:
        run_config, loaded = ranks.first_before_others(
            lambda: configuration.resolve(values, config or "options")
        )
        name = configuration.graph_name(run_config.data.name)
        if loaded is not None and not loaded.metapaths:
            print_notes([f"{why_none(loaded)}: training {run_config.model.name} instead"])
        shown.plan(f"{name} {run_config.model.name}", run_config.training.epochs)
        run = runs.train(
            run_config,
            out or runs.new_folder(name, resume=resume),
            graph=loaded,
            resume=resume,
            processes=processes or os.cpu_count() or 1,
            on_start=shown.on_start,
            on_epoch=shown.on_epoch,
            on_settle=shown.on_finalize,
            on_fold=lambda done: print_notes([f"Fold {done} of {run_config.training.folds} done"]),
        )
    if json_:
        print(json.dumps(run.result()))
    else:
        _show(run)


SELECTED = {"last": "the last one", "loss": "lowest validation loss"}


def _show(run: Run) -> None:
    from hanme.runs.build import takes_metapaths, takes_wide

    result, model = run.result(), run.config.model.name
    select = run.config.training.select
    print_scores(result["scores"])
    print_baselines(model, result)
    if "folds" in result:
        print(f"Mean of {result['folds']} models, scored out of fold.", end=" ")
    elif result["epochs"]:
        why = SELECTED.get(select, f"best validation {select} F1")
        print(f"Best epoch: {result['best_epoch']} of {result['epochs']} ({why}).", end=" ")
    explained = takes_metapaths(model) or takes_wide(model)
    commands = "predict, evaluate or explain" if explained else "predict or evaluate"
    print(f"The run is in {run.folder}. Next: hanme {commands}.")

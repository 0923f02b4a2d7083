"""The command ``hanme train``."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanme.cli.options import (
    Allow,
    Changes,
    Device,
    FeaturesOption,
    Json,
    Options,
    Source,
    fields,
    of_configuration,
    pairs,
)
from hanme.cli.show import print_costs, print_scores, print_worth, show_epochs
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.runs import Run

of_model = partial(typer.Option, rich_help_panel="Model")
of_training = partial(typer.Option, rich_help_panel="Training")

DEFAULTS = {
    "data": {"features": "given"},
    "model": {"name": "hanme"},
    "training": {"recipe": "default"},
}


def train(
    data_set: Annotated[
        str | None,
        typer.Argument(
            help="planted, IMDB, ACM, DBLP, Freebase, or a graph.toml (default: as in --config)."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run folder to write (default: runs/NAME, then runs/NAME-2, and so on).",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="The model (default: hanme), one of hanme, han, gat, magnn, magna, sehgnn, linear."
        ),
    ] = None,
    metapath: Annotated[
        list[str] | None,
        typer.Option(
            "--metapath",
            "-m",
            help="A metapath such as movie-actor-movie. Repeat it for several (default: those of "
            "the data set, see hanme inspect).",
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Maximum number of epochs (default: 200).")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Train on this many nodes at a time and read only what they touch (default: the "
            "whole graph). With torchrun, all processes share a batch."
        ),
    ] = None,
    per_root: Annotated[
        int | None,
        typer.Option(
            help="With --batch-size: attend to at most this many instances of each metapath and "
            "node, drawn anew each epoch, for hubs (default: all instances)."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Draws the split, the weights and the dropout (default: 483)."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the run in --out, or the last in runs/, if there is one."
        ),
    ] = False,
    device: Device = None,
    json_: Json = False,
    encoder: Annotated[
        str | None,
        of_model(
            help="How a metapath instance becomes a vector: multihop (default of hanme), direct, "
            "mean, linear or rotate."
        ),
    ] = None,
    hidden: Annotated[
        int | None, of_model(help="Size of a node's vector, all heads together.")
    ] = None,
    heads: Annotated[
        int | None, of_model(help="Number of attention heads; must divide --hidden.")
    ] = None,
    dropout: Annotated[float | None, of_model(help="The model's dropout.")] = None,
    gamma: Annotated[
        float | None, of_model(help="multihop: the share γ that stays at each hop (default: 0.4).")
    ] = None,
    values: Annotated[
        str | None,
        of_model(help="direct: sum the projected (default) or the transformed features."),
    ] = None,
    backend: Annotated[
        str | None, of_model(help="How attention is computed: auto, streaming, chunked or eager.")
    ] = None,
    recipe: Annotated[
        str | None,
        of_training(
            help="default: stacked with a linear model and trees; paper: as in the papers."
        ),
    ] = None,
    folds: Annotated[
        int | None,
        of_training(
            help="Cross-fitting: deal the labelled nodes into this many folds, train a model "
            "without each and predict the mean; thresholds are chosen on all labelled nodes."
        ),
    ] = None,
    processes: Annotated[
        int | None,
        of_training(
            min=1, show_default=False, help="Folds to train at a time (default: one per core)."
        ),
    ] = None,
    patience: Annotated[
        int | None,
        of_training(
            help="Stop after this many epochs without a better validation score (default: 15; "
            "paper: 100)."
        ),
    ] = None,
    lr: Annotated[
        float | None, of_training(help="Adam's step size (default: 0.01; paper: 0.005).")
    ] = None,
    weight_decay: Annotated[
        float | None, of_training(help="Adam's weight decay (default: 0.05; paper: 0.001).")
    ] = None,
    select: Annotated[
        str | None,
        of_training(
            help="What chooses the best epoch: macro (default) or micro F1 or the loss on "
            "validation nodes; last: keep the last epoch."
        ),
    ] = None,
    decide: Annotated[
        str | None,
        of_training(
            help="From probabilities to labels, where nodes have several: micro or macro (default) "
            "maximise the expected F1; half: all over 0.5, HGB's rule; fallback: the same, but at "
            "least the most likely one, the paper's."
        ),
    ] = None,
    lts: Annotated[
        str | None,
        of_training(help="Loss-aware training schedule: linear, root or geometric; or none."),
    ] = None,
    lts_start: Annotated[
        float | None, of_training(help="LTS: the share λ0 of nodes to start from (default: 0.1).")
    ] = None,
    lts_until: Annotated[
        int | None,
        of_training(
            help="LTS: the epoch T from which all nodes are trained on (default: half of --epochs, "
            "at most 100)."
        ),
    ] = None,
    features: FeaturesOption = None,
    data: Source = None,
    allow: Allow = None,
    option: Options = None,
    config: Annotated[
        str | None,
        of_configuration(
            help="A configuration file to start from, or the name of one of the package's, e.g. "
            "hanme-direct-IMDB; options on the command line override it."
        ),
    ] = None,
    changes: Changes = None,
) -> None:
    """Train a model and write a run folder. The default recipe is in docs/learning.md.

    hanme train films

    hanme train IMDB --encoder direct --lts linear --out runs/direct

    hanme train --config hanme-direct-IMDB --seed 1
    """
    from hanme import runs
    from hanme.common import ranks
    from hanme.experiments import configuration as files
    from hanme.graph.defaults import why_none

    if data_set is None and config is None:
        raise HanmeError("nothing to train on: name a data set or a --config")
    options = {
        "data.name": data_set,
        "data.source": str(data) if data else None,
        "data.features": features,
        **{f"data.options.{key}": value for key, value in pairs(option).items()},
        "model.name": model,
        "model.options.encoder": encoder,
        "model.options.metapaths": metapath or None,
        "model.options.hidden_channels": hidden,
        "model.options.heads": heads,
        "model.options.dropout": dropout,
        "model.options.gamma": gamma,
        "model.options.values": values,
        "model.options.backend": backend,
        "model.options.per_root": per_root,
        "training.seed": seed,
        "training.epochs": epochs,
        "training.patience": patience,
        "training.batch_size": batch_size,
        "training.lr": lr,
        "training.weight_decay": weight_decay,
        "training.select": select,
        "training.recipe": recipe,
        "training.folds": folds,
        "training.decide": decide,
        "training.lts.pace": lts,
        "training.lts.start": lts_start,
        "training.lts.until": lts_until,
    }
    start = files.read_config(files.find_config(config)) if config else DEFAULTS
    start = files.override(start, fields(changes))
    if lts is None and (lts_start or lts_until) and files.look_up(start, "training.lts") is None:
        raise HanmeError("--lts-start and --lts-until go with --lts linear, root or geometric")
    chosen = files.override(start, {key: v for key, v in options.items() if v is not None})
    if lts == "none":
        chosen = files.override(chosen, {"training.lts": None})
    if ranks.under_torchrun() and out is None:
        raise HanmeError("torchrun starts a lost process again: name the run folder with --out")
    with show_epochs() as shown:
        completed, graph = ranks.first_before_others(lambda: files.completed(chosen))
        run_config = runs.RunConfig.make(completed, config or "options")
        name = files.graph_name(run_config.data.name)
        if graph is not None and not graph.metapaths:
            print_costs([f"{why_none(graph)}: {run_config.model.name} is trained"])
        shown.plan(f"{name} {run_config.model.name}", run_config.training.epochs)
        run = runs.train(
            run_config,
            out or runs.new_folder(name, resume=resume),
            graph=graph,
            resume=resume,
            processes=processes or os.cpu_count() or 1,
            on_start=shown.on_start,
            on_epoch=shown.on_epoch,
            on_finalize=shown.on_finalize,
            on_fold=lambda done: print_costs([f"fold {done} of {run_config.training.folds} done"]),
        )
    if json_:
        print(json.dumps(run.result()))
    else:
        _show(run)


def _show(run: Run) -> None:
    from hanme.runs.build import takes_metapaths
    from hanme.runs.config import LINEAR

    result, select = run.result(), run.config.training.select
    by = {"last": "the last", "loss": "least loss on validation nodes"}
    chosen = by.get(select, f"best {select} F1 on validation nodes")
    explained = takes_metapaths(run.config.model.name) or run.config.model.name == LINEAR
    commands = "evaluate, predict or explain" if explained else "evaluate or predict"
    print_scores(result["scores"])
    print_worth(run.config.model.name, result)
    if "folds" in result:
        print(f"The mean of {result['folds']} models, scored out of fold.", end=" ")
    elif result["epochs"]:
        print(f"Weights of epoch {result['best_epoch']} of {result['epochs']} ({chosen}).", end=" ")
    print(f"The run is in {run.folder}: use it with hanme {commands}.")

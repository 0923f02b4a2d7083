"""hanme train"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hanme.cli.options import Changes, Features, Json, Options, Source, fields, pairs
from hanme.cli.show import print_costs, print_scores, progress
from hanme.errors import HanmeError


def train(
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    data_set: Annotated[
        str | None,
        typer.Argument(
            help="planted, IMDB, ACM, DBLP, Freebase, or a graph.toml (default: that of --config)."
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            help="A configuration file, or the name of one in the package such as "
            "hanme-direct-IMDB, to start from; what else is given goes before it."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="hanme (default), or another one of")] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="What makes a vector of a metapath instance. hanme: multihop (default), direct, "
            "mean, linear or rotate."
        ),
    ] = None,
    metapath: Annotated[
        list[str] | None,
        typer.Option(
            "--metapath",
            "-m",
            help="A metapath such as movie-actor-movie; may be given several times "
            "(default: the data set's, see hanme inspect).",
        ),
    ] = None,
    hidden: Annotated[
        int | None, typer.Option(help="Size of a node's vector, all heads together.")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="Attention heads; they must divide --hidden.")
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="The model's dropout.")] = None,
    gamma: Annotated[
        float | None, typer.Option(help="multihop: the share γ that stays at each hop (0.4).")
    ] = None,
    values: Annotated[
        str | None, typer.Option(help="direct: sum projected (default) or transformed features.")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="How attention is computed: auto, streaming, chunked or eager."),
    ] = None,
    changes: Changes = None,
    lts: Annotated[
        str | None,
        typer.Option(help="Loss-aware training schedule: linear, root or geometric; or none."),
    ] = None,
    lts_start: Annotated[
        float | None, typer.Option(help="LTS: share λ0 of nodes from which it grows (0.1).")
    ] = None,
    lts_until: Annotated[
        int | None,
        typer.Option(help="LTS: epoch T from which all are (half of them, at most 100)."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="At most so many epochs (200).")] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many without a better validation score (100).")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Adam's step size (0.005).")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Adam's weight decay (0.001).")] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help="What chooses the best epoch on validation nodes: macro (default) or micro F1, or "
            "loss; or last, for the last one."
        ),
    ] = None,
    fallback: Annotated[
        bool | None,
        typer.Option(
            "--fallback/--no-fallback",
            help="Give a node with no label over 0.5 its most likely one, or (HGB's rule) none.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Draws split, weights and dropout (483).")
    ] = None,
    data: Source = None,
    features: Features = None,
    option: Options = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out if there is one.")
    ] = False,
    json_: Json = False,
) -> None:
    """Trains a model and leaves a run folder. What is not given is as in the model's paper.

    hanme train IMDB --encoder direct --lts linear --out runs/direct

    hanme train --config hanme-direct-IMDB --seed 1 --out runs/direct
    """
    from hanme import training
    from hanme.datasets import known_name
    from hanme.experiments.configs import find_config, override, read_config
    from hanme.training.pipeline import takes_metapaths

    if data_set is None and config is None:
        raise HanmeError("nothing to train on: name a data set or a --config")
    start = read_config(find_config(config)) if config else {"model": {"name": "hanme"}}
    given = {
        "data.name": known_name(data_set) if data_set else None,
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
        "training.seed": seed,
        "training.epochs": epochs,
        "training.patience": patience,
        "training.lr": lr,
        "training.weight_decay": weight_decay,
        "training.select": select,
        "training.fallback": fallback,
    }
    chosen = override(start, fields(changes) | {k: v for k, v in given.items() if v is not None})
    chosen = _with_lts(chosen, lts, lts_start, lts_until)
    graph = known_name(str(chosen["data"]["name"]))
    name = str(chosen["model"].get("name", "hanme"))
    options = training.with_metapaths(name, graph, chosen["model"].get("options", {}))
    chosen = override(chosen, {"model.options": options})
    run_config = training.RunConfig.make(chosen, config or "options")
    with progress(f"{graph} {name}", run_config.training.epochs) as on_epoch:
        run = training.train(
            run_config, out, resume=resume, on_start=print_costs, on_epoch=on_epoch
        )
    result = run.result()
    if json_:
        print(json.dumps(result))
        return
    print_scores(result["scores"])
    takers = "evaluate, predict and explain" if takes_metapaths(name) else "evaluate and predict"
    by = {"last": "the last", "loss": "least loss on validation nodes"}
    select = run_config.training.select
    print(
        f"Weights of epoch {result['best_epoch']} of {result['epochs']} "
        f"({by.get(select, f'best {select} F1 on validation nodes')}). "
        f"The run is in {out}: hanme {takers} take it."
    )


def _with_lts(
    values: dict[str, Any], pace: str | None, start: float | None, until: int | None
) -> dict[str, Any]:
    """A configuration with what the options for LTS say."""
    from hanme.experiments.configs import look_up, override

    given = {"pace": pace, "start": start, "until": until}
    given = {key: value for key, value in given.items() if value is not None}
    if pace == "none":
        return override(values, {"training.lts": None})
    if given and pace is None and not look_up(values, "training.lts"):
        raise HanmeError("--lts-start and --lts-until go with --lts linear, root or geometric")
    return override(values, {f"training.lts.{key}": value for key, value in given.items()})

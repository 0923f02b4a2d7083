"""hanme train"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hanme.cli.options import DataSet, Features, Json, Options, Source, pairs
from hanme.cli.show import print_costs, print_scores, progress


def train(
    data_set: DataSet,
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    model: Annotated[str, typer.Option(help="One of")] = "hanme",
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
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other option of the model; may be given several times.",
        ),
    ] = None,
    lts: Annotated[
        str | None,
        typer.Option(help="Loss-aware training schedule: linear, root or geometric."),
    ] = None,
    lts_start: Annotated[
        float, typer.Option(help="LTS: share λ0 of nodes from which it grows.")
    ] = (0.1),
    lts_until: Annotated[int, typer.Option(help="LTS: epoch T from which all are.")] = 100,
    epochs: Annotated[int, typer.Option(help="At most so many epochs.")] = 200,
    patience: Annotated[
        int, typer.Option(help="Stop after so many without a better validation score.")
    ] = 100,
    lr: Annotated[float, typer.Option(help="Adam's step size.")] = 0.005,
    weight_decay: Annotated[float, typer.Option(help="Adam's weight decay.")] = 0.001,
    select: Annotated[
        str,
        typer.Option(help="Validation F1 that chooses the best epoch, macro or micro; or last."),
    ] = "macro",
    fallback: Annotated[
        bool,
        typer.Option(help="Give a node with no label over 0.5 its most likely one."),
    ] = True,
    seed: Annotated[int, typer.Option(help="Draws split, weights and dropout.")] = 483,
    data: Source = None,
    features: Features = "mean",
    option: Options = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out if there is one.")
    ] = False,
    json_: Json = False,
) -> None:
    """Trains a model and leaves a run folder. What is not given is as in the model's paper.

    hanme train IMDB --encoder direct --lts linear --out runs/direct
    """
    from hanme import training
    from hanme.datasets import known_name

    chosen = pairs(set_) | _given(
        metapaths=metapath,
        hidden_channels=hidden,
        heads=heads,
        dropout=dropout,
        backend=backend,
        encoder=encoder,
        gamma=gamma,
        values=values,
    )
    config = training.RunConfig.make(
        {
            "data": {
                "name": known_name(data_set),
                "source": str(data) if data else None,
                "features": features,
                "options": pairs(option),
            },
            "model": {
                "name": model,
                "options": training.with_metapaths(model, known_name(data_set), chosen),
            },
            "training": {
                "seed": seed,
                "epochs": epochs,
                "patience": patience,
                "lr": lr,
                "weight_decay": weight_decay,
                "select": select,
                "fallback": fallback,
                "lts": {"pace": lts, "start": lts_start, "until": lts_until} if lts else None,
            },
        },
        "options",
    )
    with progress(f"{data_set} {model}", epochs) as on_epoch:
        run = training.train(config, out, resume=resume, on_start=print_costs, on_epoch=on_epoch)
    result = run.result()
    if json_:
        print(json.dumps(result))
        return
    print_scores(result["scores"])
    print(
        f"Weights of epoch {result['best_epoch']} of {result['epochs']} "
        f"({'the last' if select == 'last' else f'best {select} F1 on validation nodes'}). "
        f"The run is in {out}."
    )


def _given(**options: Any) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}

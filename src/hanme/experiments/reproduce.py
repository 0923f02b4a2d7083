"""The paper's experiment: its table and its figure, over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hanme.datasets import METAPATHS
from hanme.experiments.pool import Job
from hanme.experiments.summary import AVERAGES, cell, columns, slug, summarise
from hanme.files import replacing, write_json
from hanme.training import Run, RunConfig
from hanme.training.curves import draw_curves

PAPER_SPLIT = 42
"""The paper's code draws the validation movies with this one, whatever the seed of the weights."""


@dataclass(frozen=True)
class System:
    """A row of the table: a model, and what the paper says of it (micro, macro F1)."""

    name: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    paper: tuple[float, float] | None = None
    lts: bool = False
    select: str = "macro"
    split: int | None = None
    """The seed that draws the validation movies; the run's own when ``None``."""

    def config(self, seed: int, source: Path | None, epochs: int) -> RunConfig:
        """Its run with the paper's protocol."""
        return RunConfig.make(
            {
                "data": {
                    "name": "IMDB",
                    "source": str(source) if source else None,
                    "seed": self.split,
                },
                "model": {
                    "name": self.model,
                    "options": {"metapaths": METAPATHS["IMDB"], **self.options},
                },
                "training": {
                    "seed": seed,
                    "epochs": epochs,
                    "select": self.select,
                    "lts": {} if self.lts else None,
                },
            }
        )


SYSTEMS = (
    System("HAN", "han", paper=(64.3, 59.5)),
    System("HAN + LTS", "han", lts=True),
    System("HAN-ME multihop", "hanme", {"encoder": "multihop"}, paper=(68.0, 63.5)),
    System("HAN-ME multihop + LTS", "hanme", {"encoder": "multihop"}, lts=True),
    System("HAN-ME direct", "hanme", {"encoder": "direct"}, paper=(67.7, 64.2)),
    System("HAN-ME direct + LTS", "hanme", {"encoder": "direct"}, lts=True),
    System(
        "HAN-ME direct, formula's values", "hanme", {"encoder": "direct", "values": "transformed"}
    ),
    System("HAN-ME mean", "hanme", {"encoder": "mean"}),
    System("HAN, paper's split", "han", split=PAPER_SPLIT),
    System("HAN-ME multihop, paper's split", "hanme", {"encoder": "multihop"}, split=PAPER_SPLIT),
    System("HAN-ME direct, paper's split", "hanme", {"encoder": "direct"}, split=PAPER_SPLIT),
    System("HAN, last epoch", "han", select="last"),
    System("HAN-ME multihop, last epoch", "hanme", {"encoder": "multihop"}, select="last"),
    System("HAN-ME direct, last epoch", "hanme", {"encoder": "direct"}, select="last"),
)


def jobs(folder: Path, seeds: Sequence[int], source: Path | None, epochs: int) -> list[Job]:
    """Every run of the experiment and where it goes."""
    return [
        (system.config(seed, source, epochs), folder / slug(system.name) / str(seed))
        for system in SYSTEMS
        for seed in seeds
    ]


def report(folder: Path, seeds: Sequence[int], out: Path) -> dict[str, Any]:
    """Writes ``paper.md``, ``paper.json`` and ``paper.svg`` / ``.png`` from finished runs."""
    rows = []
    for system in SYSTEMS:
        runs = [Run.open(folder / slug(system.name) / str(seed)) for seed in seeds]
        rows.append({"name": system.name, "paper": system.paper, **summarise(runs)})
    table = {"seeds": list(seeds), "rows": rows}
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "paper.json", table)
    with replacing(out / "paper.md") as path:
        path.write_text(_markdown(table))
    # The same curves again, and those of another split, are not shown.
    shown = [system for system in SYSTEMS if system.select != "last" and system.split is None]
    draw_curves(
        {s.name: Run.open(folder / slug(s.name) / str(seeds[0])).metrics() for s in shown},
        out / "paper",
    )
    return table


def _markdown(table: dict[str, Any]) -> str:
    seeds, rows = table["seeds"], table["rows"]
    return "\n".join(
        [
            "# The paper's table, and ours",
            "",
            "Made by `hanme reproduce`; do not edit. What was tried where a figure is not met, and",
            "how to read it, is in [notes.md](notes.md).",
            "",
            f"IMDB, metapaths {' and '.join(METAPATHS['IMDB'])}, the paper's protocol. Test F1 in",
            f"percent, mean ± standard deviation over all {len(seeds)} seeds "
            f"({', '.join(map(str, seeds))}); the paper's",
            "figures are of one seed. Unlike there, each seed draws the validation movies, which",
            "choose the best epoch, anew. A movie with no label over 0.5 gets its most likely one,",
            "as in the paper; *HGB's rule* has no such fallback. *Paper's split*: every seed has",
            f"the validation movies of the paper's code, drawn with seed {PAPER_SPLIT}.",
            "*Last epoch*: none is chosen, and the weights the training ended with are scored; so",
            "does the paper's public code, which keeps its best weights by reference.",
            "",
            "| system | paper micro | paper macro | micro | macro | micro, HGB's rule "
            "| macro, HGB's rule | validation micro | validation macro |",
            "| --- " + "| ---: " * 8 + "|",
            *(_row(row) for row in rows),
            "",
            "![Micro and macro F1 by epoch](paper.svg)",
            "",
            f"F1 by epoch on training and validation nodes, seed {seeds[0]}, with fallback.",
            "",
            "## Against the paper",
            "",
            *_against(rows),
            "",
        ]
    )


def _row(row: dict[str, Any]) -> str:
    paper = [f"{value:.1f}" for value in row["paper"]] if row["paper"] else ["–", "–"]
    keys = columns(
        [("with_fallback", "test"), ("without_fallback", "test"), ("with_fallback", "val")]
    )
    ours = [cell(row[key]) for key in keys]
    return "| " + " | ".join([row["name"], *paper, *ours]) + " |"


def _against(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for row in rows:
        if row["paper"]:
            ours = [row[f"with_fallback.test.{average}"]["mean"] for average in AVERAGES]
            micro, macro = (our - theirs for our, theirs in zip(ours, row["paper"], strict=True))
            met = "met" if min(micro, macro) >= 0 else "not met"
            lines.append(f"- {row['name']}: {met} ({micro:+.2f} micro, {macro:+.2f} macro).")
    return lines

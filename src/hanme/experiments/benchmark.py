"""What a benchmark trains: models with their configuration files, or the rows of an experiment.

An experiment is a TOML file beside this one: ``benchmark.toml``, ``paper.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from hanme.common.options import Closed, validated
from hanme.common.toml import read_toml
from hanme.data import is_tables
from hanme.errors import HanmeError
from hanme.experiments.configuration import (
    changed_config,
    completed,
    graph_name,
    look_up,
    override,
    refuse_fixed,
)
from hanme.experiments.summary import slug
from hanme.runs import RunConfig
from hanme.runs.pool import Job

HERE = Path(__file__).parent
PACKAGED = ("benchmark", "paper")


@dataclass(frozen=True)
class Entry:
    """A row of the report, to be trained over several seeds."""

    name: str  # what the report calls it
    model: str  # the model as configuration files call it, such as ``hanme-direct``
    graph: str  # the graph as they call it
    lts: str  # LTS's pace, or ``"none"``
    values: Mapping[str, Any]  # the configuration
    folder: str  # the name of the folder that has a run folder per seed
    published: Sequence[dict[str, Any]] = ()  # the figures to compare with
    curves: bool = True  # whether to draw its F1 by epoch

    @classmethod
    def make(
        cls,
        model: str,
        graph: str,
        lts: str | None,
        configs: Path | None,
        changes: Mapping[str, Any],
    ) -> Entry:
        """Make a row from a configuration, see :func:`changed_config`.

        ``lts`` is LTS's pace or ``"none"``; None leaves it as the configuration has it.
        """
        values = changed_config(model, graph, configs, changes)
        if lts == "none":
            values = override(values, {"training.lts": None})
        elif lts is not None:
            schedule = look_up(values, "training.lts") or {}
            values = override(values, {"training.lts": {**schedule, "pace": lts}})
        pace, on = _pace(RunConfig.make(values)), graph_name(graph)
        name = model if pace == "none" else f"{model} + LTS {pace}"
        figures = published(on, model) if pace == "none" else []
        return cls(name, model, on, pace, values, slug(f"{on} {name}"), figures)

    def run_folder(self, runs: Path, seed: int) -> Path:
        """Return where the run of a seed goes."""
        return runs / self.folder / str(seed)

    def jobs(self, runs: Path, seeds: Sequence[int]) -> list[Job]:
        """Return a run per seed and where it goes."""
        return [
            (
                RunConfig.make(override(self.values, {"training.seed": seed})),
                self.run_folder(runs, seed),
            )
            for seed in seeds
        ]


class Row(Closed):
    """A row of an experiment: fields to ``set``, and whose figures were ``published``."""

    name: str
    set: dict[str, Any] = Field(default_factory=dict)
    published: str | None = None
    curves: bool = True


class Experiment(Closed):
    """What to compare and how the report reads."""

    name: str  # that of the file, and of the report
    title: str  # the report's title
    about: str  # what it shows; ``{count}`` and ``{seeds}`` stand for the seeds
    rule: Literal["with_fallback", "without_fallback"]  # the decision rule whose scores come first
    sources: list[str] | None = None  # whose published figures to compare with (default: all)
    # points that a row may be below a published figure without being named
    tolerance: float = Field(ge=0)
    costs: bool = True  # whether its tables show parameters, time and memory
    # the names of the figures; ``{graph}`` stands for the graph
    figures: dict[Literal["boxes", "curves"], str]
    base: dict[str, Any] = Field(default_factory=dict)  # the configuration that rows start from
    # the rows; without any, they come from configuration files
    row: list[Row] = Field(default_factory=list)

    @classmethod
    def read(cls, name: str) -> Experiment:
        """Read ``benchmark``, ``paper``, or a TOML file of one's own."""
        path = HERE / f"{name}.toml" if name in PACKAGED else Path(name)
        if path.suffix != ".toml":
            there = " and ".join(PACKAGED)
            raise HanmeError(f"no experiment {name!r}; there are {there}, or name a TOML file")
        return validated(cls, {"name": path.stem, **read_toml(path)}, str(path))

    def stems(self, graph: str) -> dict[str, str]:
        """Return the names of a graph's figures by kind, without suffix."""
        return {kind: name.replace("{graph}", graph) for kind, name in self.figures.items()}

    def entries(self, changes: Mapping[str, Any], source: Path | None = None) -> list[Entry]:
        """Make the rows, with new values by field; a row keeps those that it sets itself."""
        refuse_fixed(changes, f"{self.name}.toml and the seeds set it")
        return [self._entry(row, changes, source) for row in self.row]

    def _entry(self, row: Row, changes: Mapping[str, Any], source: Path | None) -> Entry:
        values, _ = completed(override(self.base, {**changes, **row.set}))
        values = override(values, from_source(values["data"]["name"], source))
        config = RunConfig.make(values, f"{self.name}.toml, {row.name}")
        graph, model = graph_name(config.data.name), row.published or config.model.name
        figures = published(graph, row.published, self.sources) if row.published else []
        pace, folder = _pace(config), slug(row.name)
        return Entry(row.name, model, graph, pace, values, folder, figures, row.curves)


def published(graph: str, model: str, sources: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return what others report for a model on a graph, perhaps only some of these sources."""
    figures = read_toml(HERE / "published.toml")["figure"]
    return [
        figure
        for figure in figures
        if (figure["graph"], figure["model"]) == (graph, model)
        and (sources is None or figure["source"] in sources)
    ]


def from_source(graph: str, source: Path | None) -> dict[str, str]:
    """Return the change that reads a graph from ``source``, if it is read from files at all."""
    own = graph.lower() == "planted" or is_tables(graph)
    return {} if source is None or own else {"data.source": str(source)}


def _pace(config: RunConfig) -> str:
    return config.training.lts.pace if config.training.lts else "none"

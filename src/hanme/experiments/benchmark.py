"""The rows of a benchmark: models with their configuration files, or those of an experiment.

An experiment is a TOML file such as the packaged ``benchmark.toml`` and ``paper.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from hanme.common.options import Closed, validated
from hanme.common.toml import read_toml
from hanme.data import is_tables
from hanme.errors import HanmeError
from hanme.experiments.configuration import changed_config, graph_name, refuse_fixed
from hanme.runs import RunConfig, resolve
from hanme.runs.config import look_up, override
from hanme.runs.pool import Job

HERE = Path(__file__).parent
PACKAGED = ("benchmark", "paper", "questions")


@dataclass(frozen=True)
class Entry:
    """A row of the report, trained once per seed."""

    name: str  # its name in the report
    model: str  # the model as in the names of configuration files, such as ``hanme-direct``
    config: RunConfig
    folder: str  # name of the folder with a run folder per seed
    published: Sequence[dict[str, Any]] = ()  # published scores to compare with
    curves: bool = True  # draw F1 by epoch

    @classmethod
    def make(
        cls,
        model: str,
        graph: str,
        lts: str | None,
        configs: Path | None,
        changes: Mapping[str, Any],
    ) -> Entry:
        """Make a row from a configuration; a pace of LTS replaces that of the configuration."""
        values = changed_config(model, graph, configs, changes)
        if lts is not None:
            schedule = look_up(values, "training.lts") or {}
            values = override(values, {"training.lts": {**schedule, "pace": lts}})
        entry = cls(model, model, RunConfig.make(values), "")
        name = model if entry.lts == "none" else f"{model} + LTS {entry.lts}"
        figures = published(entry.graph, model) if entry.lts == "none" else []
        return replace(entry, name=name, folder=slug(f"{entry.graph} {name}"), published=figures)

    @property
    def graph(self) -> str:
        """The graph as in the names of configuration files."""
        return graph_name(self.config.data.name)

    @property
    def lts(self) -> str:
        """The pace of LTS, or ``"none"``."""
        return self.config.training.lts.pace if self.config.training.lts else "none"

    def jobs(self, runs: Path, seeds: Sequence[int]) -> list[Job]:
        """Return the configuration and the folder of a run per seed."""
        values = self.config.model_dump()
        configs = {s: RunConfig.make(override(values, {"training.seed": s})) for s in seeds}
        return [(config, runs / self.folder / str(seed)) for seed, config in configs.items()]


class Row(Closed):
    """A row of an experiment: the fields it sets, and the model in ``published.toml``."""

    name: str
    set: dict[str, Any] = Field(default_factory=dict)
    published: str | None = None
    curves: bool = True


class Experiment(Closed):
    """The rows to compare and the text of the report."""

    name: str  # of the file and of the report
    title: str  # of the report
    about: str  # introduction; ``{count}`` and ``{seeds}`` stand for the seeds
    seeds: list[int] = Field(default=[0, 1, 2, 3, 4], min_length=1)
    rule: Literal["with_fallback", "without_fallback"]  # decision rule of the first scores
    sources: list[str] | None = None  # of published scores to compare with (default: all)
    base: dict[str, Any] = Field(default_factory=dict)  # the configuration that rows start from
    row: list[Row] = Field(default_factory=list)  # default: one per configuration file

    @classmethod
    def read(cls, name: str) -> Experiment:
        """Read a packaged experiment by its name, or a TOML file."""
        path = HERE / f"{name}.toml" if name in PACKAGED else Path(name)
        if path.suffix != ".toml":
            names = ", ".join(PACKAGED)
            raise HanmeError(f"no experiment {name!r}; expected {names} or a TOML file")
        return validated(cls, {"name": path.stem, **read_toml(path)}, str(path))

    def first_seeds(self, number: int) -> list[int]:
        """Return the first seeds, continued by 1, 2, 3, ... where there are not enough."""
        more = (seed for seed in count(1) if seed not in self.seeds)
        return [*self.seeds, *islice(more, number)][:number]

    def entries(self, changes: Mapping[str, Any], source: Path | None = None) -> list[Entry]:
        """Make the rows with some fields changed; a row keeps the fields that it sets itself."""
        refuse_fixed(changes, f"{self.name}.toml and the seeds set it")
        entries = []
        for row in self.row:
            values = override(self.base, {**changes, **row.set})
            values = override(values, from_source(str(look_up(values, "data.name")), source))
            config, _ = resolve(values, f"{self.name}.toml, {row.name}")
            entry = Entry(row.name, row.published or config.model.name, config, slug(row.name))
            figures = published(entry.graph, row.published, self.sources) if row.published else []
            entries.append(replace(entry, published=figures, curves=row.curves))
        names: dict[str, str] = {}
        for entry in entries:
            if entry.folder in names:
                both = f"{names[entry.folder]!r} and {entry.name!r}"
                raise HanmeError(
                    f"{self.name}.toml: rows {both} would share a run folder; names must differ in "
                    "letters a to z and digits"
                )
            names[entry.folder] = entry.name
        return entries


def published(graph: str, model: str, sources: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the published scores of a model on a graph, of all or some sources."""
    figures = read_toml(HERE / "published.toml")["figure"]
    return [
        figure
        for figure in figures
        if (figure["graph"], figure["model"]) == (graph, model)
        and (sources is None or figure["source"] in sources)
    ]


def from_source(graph: str, source: Path | None) -> dict[str, str]:
    """Return the field that reads a benchmark graph from ``source``; none for other graphs."""
    own = graph == "planted" or is_tables(graph)
    return {} if source is None or own else {"data.source": str(source)}


def slug(name: str) -> str:
    """Turn a name into that of a folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())

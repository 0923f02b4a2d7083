"""From a finished run to predictions, on its own graph or on one that has grown since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.datasets.nodes import find
from hanme.notebook import html_table
from hanme.training.pipeline import open_run, other_tables
from hanme.training.predictions import predictions, write_predictions
from hanme.training.run import Run

SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """What a run predicts.

    Args:
        data: The graph.
        logits: Of all its target nodes, ``[N, C]``.
        nodes: Those asked for, None for all.
        fallback: See :func:`~hanme.training.metrics.decide`.
        grown: Whether the graph is not the one the run was trained on.
    """

    data: HeteroData
    logits: Tensor
    nodes: list[int] | None
    fallback: bool
    grown: bool

    def __len__(self) -> int:
        return self.logits.size(0) if self.nodes is None else len(self.nodes)

    def write(self, path: str | Path) -> None:
        """Writes Parquet, CSV or JSON, by the file's ending."""
        write_predictions(self.data, self.logits, Path(path), **self._chosen())

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """A dictionary per node, of the first few or of all."""
        chosen = self._chosen()
        if limit is not None:
            nodes = range(len(self)) if self.nodes is None else self.nodes
            chosen["nodes"] = list(nodes[:limit])
        return predictions(self.data, self.logits, **chosen)

    def __repr__(self) -> str:
        labels = self.data[self.data.target].label_names
        return f"Prediction({len(self):,} {self.data.target}: {', '.join(map(str, labels))})"

    def _repr_html_(self) -> str:
        """The first rows as a table, for notebooks."""
        rows = self.rows(SHOWN)
        head = list(rows[0]) if rows else []
        below = f"{len(rows)} of {len(self):,} {self.data.target}"
        return html_table(head, (list(row.values()) for row in rows), below)

    def _chosen(self) -> dict[str, Any]:
        # On another graph nobody drew a split, and none is shown.
        return {"fallback": self.fallback, "nodes": self.nodes, "split": not self.grown}


@torch.no_grad()
def predict(
    folder: Path,
    *,
    nodes: Sequence[str | int] | None = None,
    graph: str | Path | None = None,
    source: str | Path | None = None,
) -> Prediction:
    """Predicts labels with a finished run.

    The whole graph is computed whichever nodes are asked for: a node's prediction depends on the
    graph (semantic attention is a mean over all target nodes), not on the others asked for.

    Args:
        folder: The run.
        nodes: Target nodes by id, else by name, else by number (default: all).
        graph: Another ``graph.toml`` of the same schema, such as one whose tables have grown.
        source: Where the files of a benchmark graph are.
    """
    run = Run.open(folder)
    data, model = open_run(run, source, graph)
    return Prediction(
        data,
        model(data),
        None if nodes is None else [find(data, data.target, node) for node in nodes],
        run.config.training.fallback,
        grown=other_tables(data, run.fitted()),
    )

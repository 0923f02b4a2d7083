"""Predictions of a trained model, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from hanme.common.html import html_table
from hanme.decision import Decision
from hanme.graph import Graph
from hanme.runs.predictions import frame, predictions, write_predictions

SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """What a model predicts.

    Args:
        graph: The graph.
        logits: Of all its target nodes, ``[N, C]``.
        nodes: Those asked for, None for all.
        decision: From logits to labels.
        grown: Whether the graph is not the one the model was trained on.
    """

    graph: Graph
    logits: Tensor
    nodes: list[int] | None
    decision: Decision
    grown: bool

    def __len__(self) -> int:
        return self.logits.size(0) if self.nodes is None else len(self.nodes)

    @property
    def chosen_logits(self) -> Tensor:
        """The logits of the nodes asked for, ``[R, C]``."""
        return self.logits if self.nodes is None else self.logits[self.nodes]

    def write(self, path: str | Path) -> None:
        """Write Parquet, CSV or JSON, by the file's ending."""
        write_predictions(self.graph, self.logits, Path(path), **self._chosen())

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return a dictionary per node, of the first few or of all."""
        chosen = self._chosen()
        if limit is not None:
            nodes = range(len(self)) if self.nodes is None else self.nodes
            chosen["nodes"] = list(nodes[:limit])
        return predictions(self.graph, self.logits, **chosen)

    def frame(self) -> Any:
        """Return a pandas data frame with a row per node; pandas must be installed."""
        return frame(self.graph, self.logits, **self._chosen())

    def __repr__(self) -> str:
        labels = self.graph.labels
        return f"Prediction({len(self):,} {self.graph.target}: {', '.join(labels)})"

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        rows = self.rows(SHOWN)
        head = list(rows[0]) if rows else []
        below = f"{len(rows)} of {len(self):,} {self.graph.target}"
        return html_table(head, (list(row.values()) for row in rows), below)

    def _chosen(self) -> dict[str, Any]:
        # On another graph nobody drew a split, and none is shown.
        return {"decision": self.decision, "nodes": self.nodes, "split": not self.grown}

"""Predictions of a trained model, as a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from hanme.common import ranks
from hanme.common.html import html_table
from hanme.decision import Decision
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.runs.predictions import UNLABELLED, frame, predictions, uses, write_predictions

SHOWN = 10

Order = Literal["uncertain", "surprising"]
"""Which nodes come first, see :meth:`Prediction.ranked`."""


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
    def numbers(self) -> list[int]:
        """The numbers of the nodes asked for."""
        return list(range(len(self))) if self.nodes is None else self.nodes

    @property
    def chosen_logits(self) -> Tensor:
        """The logits of the nodes asked for, ``[R, C]``."""
        return self.logits if self.nodes is None else self.logits[self.nodes]

    def only(self, use: str) -> Prediction:
        """Return those of the nodes that were used for ``train``, ``val`` or ``test``.

        Args:
            use: Or ``unlabelled``, for nodes without a label; or ``unused``, for nodes whose label
                is outside the split.
        """
        if use not in (*self.graph.split.parts(), "unused", UNLABELLED):
            parts = ", ".join(self.graph.split.parts())
            raise HanmeError(f"split {use!r}: there are {parts}, unused and {UNLABELLED}")
        if self.grown and use != UNLABELLED:
            raise HanmeError(
                f"split {use!r}: the tables have changed since training, so it is not known what "
                f"a row was used for; {UNLABELLED} can be asked for"
            )
        used = uses(self.graph)
        return replace(self, nodes=[node for node in self.numbers if used[node] == use])

    def ranked(self, order: Order | None = None, *, top: int | None = None) -> Prediction:
        """Return the nodes in another order, such as the first hundred that a person should check.

        Args:
            order: ``"uncertain"``: those first whose labels the model knows least (see
                :meth:`Decision.uncertainty <hanme.decision.Decision.uncertainty>`).
                ``"surprising"``: those with a label, first those whose label the model believes
                least (see :meth:`Decision.surprise <hanme.decision.Decision.surprise>`). None: as
                they are.
            top: How many (default: all).
        """
        nodes, logits, several = self.numbers, self.chosen_logits, self.graph.multilabel
        if order is not None:
            if order == "uncertain":
                by = self.decision.uncertainty(logits, multilabel=several)
            elif order == "surprising":
                given = self.graph.labels_given(torch.tensor(nodes, dtype=torch.long))
                by = self.decision.surprise(logits, given, multilabel=several)
            else:
                raise HanmeError(f"order {order!r}: there are {' and '.join(get_args(Order))}")
            places = by.argsort(descending=True, stable=True)
            nodes = [nodes[place] for place in places[~by[places].isnan()].tolist()]
        return replace(self, nodes=nodes[:top])

    def write(self, path: str | Path) -> None:
        """Write Parquet, CSV or JSON, by the file's ending.

        Several processes write a folder of Parquet files, ``part-0.parquet`` and so on, each its
        share of the rows.
        """
        if ranks.count() > 1:
            part = ranks.from_first(lambda: _folder(Path(path))) / f"part-{ranks.rank()}.parquet"
            mine = ranks.share(torch.tensor(self.numbers, dtype=torch.long)).tolist()
            chosen = self._chosen() | {"nodes": mine}
            write_predictions(self.graph, self.logits, part, **chosen)
            return
        write_predictions(self.graph, self.logits, Path(path), **self._chosen())

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return a dictionary per node, of the first few or of all."""
        chosen = self._chosen()
        if limit is not None:
            chosen["nodes"] = self.numbers[:limit]
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


def _folder(path: Path) -> Path:
    """Make the folder for the parts of a table, without parts that were there before."""
    if path.suffix.lower() != ".parquet":
        raise HanmeError(f"{path}: several processes write Parquet; name it .parquet")
    if path.is_file():
        path.unlink()
    path.mkdir(parents=True, exist_ok=True)
    for part in path.glob("part-*.parquet"):
        part.unlink()
    return path

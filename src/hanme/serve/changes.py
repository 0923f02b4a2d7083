"""What if: predictions of nodes with other links or cells, and of rows that are in no table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hanme.explain.change import Link
from hanme.graph import EdgeType
from hanme.serve import schemas
from hanme.serve.rows import read_upload, with_nodes
from hanme.serve.served import NotFound, NotSupported, ServedRun, require
from hanme.serve.table import Table
from hanme.serve.work import Recent

MOST_LINKS = 12
"""Maximum number of links per relation that are tried one by one, without each of them."""

MOST_EXPLAINED = 10
"""Number of new rows that are explained unless one is chosen: each takes a while."""


def relation(served: ServedRun, text: str) -> EdgeType:
    """Return a relation of the target by its full name, its name, or the type it leads to."""
    own = [e for e in served.graph.links if e[0] == served.graph.target]
    column = served.index.rows.column_relation(text)
    for found in (
        [e for e in own if "-".join(e) == text],
        [e for e in own if e[1] in (text, column)],
        [e for e in own if e[2] == text],
    ):
        if len(found) == 1:
            return found[0]
    names = ", ".join("-".join(e) for e in own)
    raise NotFound(f"no relation {text!r}; expected one of {names or 'none'}")


def with_rows(served: ServedRun, rows: Sequence[schemas.NewRow]) -> ServedRun:
    """Return the run on a graph that has new rows, too: the last of its target nodes."""
    graph, index = served.graph, served.index
    if graph.stored:
        raise NotSupported("the graph is read from disk: predict new rows by predict --graph")
    known, first = index.rows.columns(graph.target), graph.targets.num_nodes
    links: dict[EdgeType, list[tuple[int, int]]] = {}
    cells = [_cells(row.columns) for row in rows]
    for number, row in enumerate(rows, first):
        for column in row.columns:
            require("column", column, known)
        for text, ends in row.links.items():
            e = relation(served, text)
            for end in dict.fromkeys(served.find(e[2], end) for end in ends):
                links.setdefault(e, []).append((number, end))
                if e in index.reverse:
                    links.setdefault(index.reverse[e], []).append((end, number))
    x = index.rows.encode(graph.target, served.fitted, cells)
    names = [
        index.rows.name_of(graph.target, row) or f"new {index.names[graph.target].singular}"
        for row in cells
    ]
    ids = [f"new {number}" for number in range(first, first + len(rows))]
    other = copy(served)
    other.recent = Recent(len(rows))
    other.run = served.run.with_graph(with_nodes(graph, x, ids, names, links))
    other.graph = other.run.graph
    counts = [sum(len(ends) for ends in row.links.values()) for row in rows]
    degree = np.concatenate([index.degree, np.array(counts, np.int64)])
    other.table = Table(other.run.predict(), degree)
    other.explainer = other.run.explainer if served.explainer else None
    return other


def read_rows(served: ServedRun, body: bytes) -> list[schemas.NewRow]:
    """Read new rows from a CSV file, see :func:`~hanme.serve.rows.read_upload`."""
    head, lines = read_upload(body)
    known, relations = served.index.rows.columns(served.graph.target), dict[str, str]()
    for column in head:
        if column not in known or served.index.rows.column_relation(column):
            try:
                relations[column] = "-".join(relation(served, column))
            except NotFound as error:
                names = ", ".join(known)
                raise NotFound(f"column {column!r}: the columns are {names}; {error}") from None
    rows = []
    for line in lines:
        cells = dict(zip(head, line, strict=True))
        columns = {c: cells[c].strip() or None for c in head if c not in relations}
        links: dict[str, list[str]] = {}
        for column, name in relations.items():
            ends = [end.strip() for end in cells[column].split("|")]
            links.setdefault(name, []).extend(filter(None, ends))
        rows.append(schemas.NewRow.model_validate({"columns": columns, "links": links}))
    return rows


def predict_rows(
    served: ServedRun,
    rows: Sequence[schemas.NewRow],
    explain: int | None = None,
    pause: Callable[[], None] = lambda: None,
) -> list[schemas.NewPrediction]:
    """Predict new rows without training, and explain one of them, or the first ones."""
    if explain is not None and explain >= len(rows):
        raise NotFound(f"no row {explain} to explain; rows are 0 to {len(rows) - 1}")
    other, first = with_rows(served, rows), served.graph.targets.num_nodes
    chosen = range(MOST_EXPLAINED) if explain is None else [explain]
    asked = schemas.Question()
    return [
        schemas.NewPrediction(
            prediction=other.table.row(first + i),
            explanation=other.explain(first + i, asked, pause)
            if other.explainer and i in chosen
            else None,
            notes=[
                f"{served.index.names[served.graph.target].title(column)}: the model does not know "
                f"{value!r}, so it counts as none of the known values"
                for column, value in served.index.rows.unknown(
                    served.graph.target, served.fitted, _cells(row.columns)
                )
            ],
        )
        for i, row in enumerate(rows)
    ]


def _cells(columns: Mapping[str, str | float | None]) -> dict[str, str | None]:
    """Return cells as text, as a table has them: 3, not 3.0."""
    return {c: f"{v:.15g}" if isinstance(v, float) else v for c, v in columns.items()}


def change(
    served: ServedRun, node: int, changes: schemas.Changes, pause: Callable[[], None] = lambda: None
) -> dict[str, schemas.Outcome]:
    """Predict a node before and after a change of its links and of its row."""
    if served.explainer is None:
        raise NotSupported(served.why_not)
    node, relations = served.target(node), served.index.relations
    for link in (*changes.remove, *changes.add):
        require("relation", link.relation, relations)
    remove, add = (
        [Link(relations[link.relation], link.source, link.target) for link in links]
        for links in (changes.remove, changes.add)
    )
    row = _edited(served, node, changes.columns) if changes.columns else None
    after, _ = served.what_if.logits(node, remove=remove, add=add, row=row, pause=pause)
    logits = torch.stack([served.run.logits()[node], after.float()]).cpu()
    return dict(zip(("before", "after"), _outcomes(served, node, logits), strict=True))


def _outcomes(served: ServedRun, node: int, logits: Tensor) -> list[schemas.Outcome]:
    nodes = torch.full((len(logits),), node)
    all_ = replace(served.table.prediction, nodes=nodes, logits=logits)
    return [
        schemas.Outcome(
            logits=logits[i].tolist(),
            probabilities=all_.probabilities[i].tolist(),
            predicted=served.table.names(all_.predicted[i].numpy()),
        )
        for i in range(len(logits))
    ]


def _edited(served: ServedRun, node: int, columns: Mapping[str, str | float | None]) -> Tensor:
    """Return the features of a node whose row has other cells, ``[F]``."""
    for column in columns:
        require("column that the model reads", column, served.fitted)
    kind = served.graph.target
    cells = served.index.rows.row(kind, node) | _cells(columns)
    encoded = served.index.rows.encode(kind, served.fitted, [cells])
    return torch.from_numpy(encoded.toarray()[0])


def _other_cells(served: ServedRun, node: int) -> list[tuple[str, str | None, Tensor]]:
    """Return common values for each column of a node's row, with the features it would have."""
    kind, rows = served.graph.target, served.index.rows
    if not (own := rows.row(kind, node)) or not served.fitted:
        return []
    tried = [
        (column, value)
        for column, fitted in served.fitted.items()
        for value in rows.common(kind, column, fitted)
        if value != own.get(column)
    ]
    cells = [own | {column: value} for column, value in tried]
    x = torch.from_numpy(rows.encode(kind, served.fitted, cells).toarray())
    return [(column, value, x[i]) for i, (column, value) in enumerate(tried)]


def effects(
    served: ServedRun, node: int, label: str, pause: Callable[[], None] = lambda: None
) -> schemas.Effects:
    """Try single changes of a node: without a link, or with a common value in a column."""
    return served.recent.get((node, label), lambda: _effects(served, node, label, pause))


def _effects(
    served: ServedRun, node: int, label: str, pause: Callable[[], None]
) -> schemas.Effects:
    if served.explainer is None:
        raise NotSupported(served.why_not)
    if label:
        require("label", label, served.graph.labels)
    node = served.target(node)
    before = served.table.row(node)
    at = served.graph.labels.index(label) if label else int(np.argmax(before.probabilities))
    tried: list[schemas.Effect] = []

    def attempt(text: str, logits: Tensor, **change: Any) -> None:
        (after,) = _outcomes(served, node, logits[None].float().cpu())
        flips = after.predicted != before.predicted
        tried.append(
            schemas.Effect(
                **change,
                text=text,
                probability=after.probabilities[at],
                predicted=after.predicted,
                flips=flips,
            )
        )

    own = [(n, e) for n, e in served.index.relations.items() if e[0] == served.graph.target]
    for name, e in own:
        for end in torch.unique(served.graph.adjacency(e).of_node(node)).tolist()[:MOST_LINKS]:
            logits, _ = served.what_if.logits(node, remove=[Link(e, node, end)], pause=pause)
            ref = schemas.LinkRef(relation=name, source=node, target=end)
            title = served.graph.nodes[e[2]].title(end)
            attempt(f"without {served.index.names[e[2]].singular} {title}", logits, remove=ref)
    for column, value, row in _other_cells(served, node):
        logits, _ = served.what_if.logits(node, row=row, pause=pause)
        title = served.index.names[served.graph.target].title(column)
        attempt(f"{title} {value or 'empty'}", logits, column=column, value=value)
    now = before.probabilities[at]
    tried.sort(
        key=lambda one: (not one.flips, abs(one.probability - now) * (1 if one.flips else -1))
    )
    return schemas.Effects(
        label=served.graph.labels[at], probability=now, predicted=before.predicted, effects=tried
    )

"""What if: predictions of nodes with other links or cells, and of rows that are in no table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hanme.explain import Explainer
from hanme.explain.change import Link
from hanme.graph import EdgeType, Graph, Texts
from hanme.serve import schemas
from hanme.serve.rows import read_upload, with_nodes
from hanme.serve.served import NotFound, NotSupported, Recent, ServedRun, require
from hanme.serve.table import Table

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
    cells, counts = [_cells(served, row.columns) for row in rows], []
    for i, row in enumerate(rows):
        for column in row.columns:
            require("column", column, known)
        ends = _ends(served, i, row)
        for column, e in _linking(served).items():  # a cell and a link that say the same
            if e not in ends and (end := _known(graph, e[2], cells[i].get(column))) is not None:
                ends[e] = [end]
            elif len(ends.get(e, ())) == 1:
                cells[i].setdefault(column, graph.nodes[e[2]].identity(ends[e][0]))
        counts.append(sum(map(len, ends.values())))
        for e, numbers in ends.items():
            links.setdefault(e, []).extend((first + i, end) for end in numbers)
            if e in index.reverse:
                back = links.setdefault(index.reverse[e], [])
                back.extend((end, first + i) for end in numbers)
    x = index.rows.encode(graph.target, served.fitted, cells)
    names = [
        index.rows.name_of(graph.target, row) or f"new {index.names[graph.target].singular}"
        for row in cells
    ]
    ids = [f"new {number}" for number in range(first, first + len(rows))]
    for i, own in enumerate(cells):
        given = index.rows.id_of(graph.target, own)
        if given and given not in ids and _known(graph, graph.target, given) is None:
            ids[i] = given
    other = copy(served)
    other.recent = Recent(len(rows))
    other.run = served.run.with_graph(with_nodes(graph, x, ids, names, links))
    other.graph = other.run.graph
    degree = np.concatenate([index.degree, np.array(counts, np.int64)])
    if served.explainer is None:
        other.table = Table(other.run.predict(), degree)
        return other
    # Other nodes stay as they are, so only the new ones are computed.
    what_if, new = served.what_if, torch.arange(first, first + len(rows))
    model = what_if.frozen.grown(other.graph, new)
    other.explainer = Explainer(model, other.graph, served.run.decision, what_if.open.weights)
    logits = [other.explainer.root(number).logits for number in new.tolist()]
    every = torch.cat([served.run.logits(), torch.stack(logits).to(served.run.logits())])
    nodes = torch.arange(len(every))
    predicted = replace(served.table.prediction, graph=other.graph, nodes=nodes, logits=every)
    other.table = Table(predicted, degree)
    return other


def _linking(served: ServedRun) -> dict[str, EdgeType]:
    """Return the categories of the target that are links as well, and their relations."""
    target, names = served.graph.target, served.index.names[served.graph.target].links
    steps = {e[1]: e for e in served.graph.links if e[0] == target}
    return {
        column: steps[name]
        for column, name in names.items()
        if name in steps and column in served.fitted and served.fitted[column].kind == "category"
    }


def _known(graph: Graph, kind: str, identity: str | None) -> int | None:
    """Return the number of the node with an id, None if there is none."""
    ids = graph.nodes[kind].ids
    return next(iter(Texts.of(ids).find(identity)), None) if ids and identity else None


def _ends(served: ServedRun, number: int, row: schemas.NewRow) -> dict[EdgeType, list[int]]:
    """Return the nodes that a new row is linked to, by relation."""
    ends: dict[EdgeType, list[int]] = {}
    for text, names in row.links.items():
        e = relation(served, text)
        try:
            found = [served.find(e[2], name) for name in names]
        except NotFound as error:
            raise NotFound(f"row {number}, {text}: {error}") from None
        ends[e] = list(dict.fromkeys([*ends.get(e, ()), *found]))
    return ends


def read_rows(served: ServedRun, body: bytes) -> list[schemas.NewRow]:
    """Read new rows from a CSV file, see :func:`~hanme.serve.rows.read_upload`."""
    head, lines = read_upload(body)
    known, relations = served.index.rows.columns(served.graph.target), dict[str, str]()
    for column in head:
        if column in _linking(served):
            continue
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
                    served.graph.target, served.fitted, _cells(served, row.columns)
                )
            ],
        )
        for i, row in enumerate(rows)
    ]


def _cells(served: ServedRun, columns: Mapping[str, str | float | None]) -> dict[str, str | None]:
    """Return cells as text, as the table has them."""
    write, target = served.index.rows.written, served.graph.target
    return {c: write(target, c, v) if isinstance(v, float) else v for c, v in columns.items()}


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
    columns = _cells_of(served, node, remove, add) | changes.columns
    for column, value in _cells(served, changes.columns).items():
        e = _linking(served).get(column)
        if e and not any(link.relation == e for link in (*remove, *add)):
            gone, come = _links_of(served, node, column, value)
            remove, add = [*remove, *gone], [*add, *come]
    row = _edited(served, node, columns) if columns else None
    after, _ = served.what_if.logits(node, remove=remove, add=add, row=row, pause=pause)
    logits = torch.stack([served.run.logits()[node], after.float()]).cpu()
    return dict(zip(("before", "after"), _outcomes(served, node, logits), strict=True))


def _cells_of(
    served: ServedRun, node: int, remove: Sequence[Link], add: Sequence[Link] = ()
) -> dict[str, str | None]:
    """Return what cells become that say the same as some links which go or come."""
    own, cells = served.index.rows.row(served.graph.target, node), dict[str, str | None]()
    for column, e in _linking(served).items() if own else ():
        ids = served.graph.nodes[e[2]].identity
        gone = {ids(link.target) for link in remove if link.relation == e}
        come = [ids(link.target) for link in add if link.relation == e]
        if own.get(column) in gone:
            cells[column] = None
        if come and not (own | cells).get(column):
            cells[column] = come[0]
    return cells


def _links_of(
    served: ServedRun, node: int, column: str, value: str | None
) -> tuple[list[Link], list[Link]]:
    """Return the links that go and that come where a cell that is a link as well changes."""
    e = _linking(served).get(column)
    if e is None:
        return [], []
    own = served.index.rows.row(served.graph.target, node).get(column)
    old, new = (_known(served.graph, e[2], cell) for cell in (own, value))
    ends = served.graph.adjacency(e).of_node(node).tolist()
    gone = [Link(e, node, old)] if old is not None and old in ends and old != new else []
    come = [Link(e, node, new)] if new is not None and new not in ends else []
    return gone, come


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
    cells = served.index.rows.row(kind, node) | _cells(served, columns)
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
    names = served.graph.labels
    likely = sorted(zip(before.probabilities, names, strict=True), reverse=True)
    chosen = [name for _, name in likely if name in before.predicted] or [likely[0][1]]
    at = names.index(label or chosen[0])
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
            gone = [Link(e, node, end)]
            cells = _cells_of(served, node, gone)
            row = _edited(served, node, cells) if cells else None
            logits, _ = served.what_if.logits(node, remove=gone, row=row, pause=pause)
            ref = schemas.LinkRef(relation=name, source=node, target=end)
            title = served.graph.nodes[e[2]].title(end)
            attempt(f"without {served.index.names[e[2]].singular} {title}", logits, remove=ref)
    for column, value, row in _other_cells(served, node):
        gone, come = _links_of(served, node, column, value)
        logits, _ = served.what_if.logits(node, remove=gone, add=come, row=row, pause=pause)
        title = served.index.names[served.graph.target].title(column)
        attempt(f"{title} {value or 'empty'}", logits, column=column, value=value)
    now = before.probabilities[at]
    tried.sort(
        key=lambda one: (not one.flips, abs(one.probability - now) * (1 if one.flips else -1))
    )
    return schemas.Effects(
        label=served.graph.labels[at], probability=now, predicted=before.predicted, effects=tried
    )

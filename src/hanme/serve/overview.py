"""How good a run is and where it is weak, and where two runs differ."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from hanme.runs.results import rule_name
from hanme.serve import schemas
from hanme.serve.served import NotSupported, ServedRun
from hanme.serve.table import Flags
from hanme.training.metrics import f1

MOST_LABELS = 40
"""Maximum number of rows of the confusion matrix: the most common labels."""
QUARTERS = 4
"""Number of groups of nodes by degree."""

Differ = Literal["differ", "all", "a_right", "b_right"]


def overview(served: ServedRun) -> schemas.Overview:
    """Return scores beside the baselines, reliability, confusion, weak spots and weights."""
    result, part = served.run.result, _part(served)
    quality = result["probabilities"].get(part, {})
    mask = _measured(served, part)
    return schemas.Overview(
        part=part,
        nodes=int(served.graph.split.parts()[part].sum()) if part else 0,
        scores=_scores(served, part) if part else [],
        brier=quality.get("brier"),
        calibration_error=quality.get("error"),
        reliability=quality.get("reliability", []),
        confusion=_confusion(served, mask),
        by_label=_by_label(served, mask),
        by_degree=_by_degree(served, mask),
        metapaths=served.metapaths,
        slopes=result["slopes"],
        parts=_parts(served),
    )


def _part(served: ServedRun) -> Literal["test", "val", ""]:
    """Return the part to measure on: test, or validation nodes where there is no test part."""
    if served.run.differs_from_training:
        return ""
    split = served.graph.split
    return "test" if bool(split.test.any()) else "val" if bool(split.val.any()) else ""


def _measured(served: ServedRun, part: str) -> Flags:
    """Return the nodes that are looked at one by one; none if the final weights have seen them."""
    seen = part == "val" and served.run.config.training.refit
    if not part or seen:
        return np.zeros(len(served.table), bool)
    mask: Flags = served.graph.split.parts()[part].cpu().numpy()
    return mask & served.table.labelled


def _scores(served: ServedRun, part: str) -> list[schemas.Score]:
    result = served.run.result
    scores, intervals = result["scores"], result.get("intervals", {})
    own = scores[rule_name(served.run.decision)].get(part)
    given: dict[Literal["model", "linear", "majority"], Any] = {"model": own}
    for name in ("linear", "majority"):
        given[name] = result.get("baselines", {}).get(name, {}).get(part)
    return [
        schemas.Score(
            name=name,
            micro=found["micro"],
            macro=found["macro"],
            micro_interval=intervals.get(name, {}).get(part, {}).get("micro"),
            macro_interval=intervals.get(name, {}).get(part, {}).get("macro"),
        )
        for name, found in given.items()
        if found
    ]


def _confusion(served: ServedRun, mask: Flags) -> schemas.Confusion:
    true, said = served.table.true[mask], served.table.predicted[mask]
    common = np.sort(np.argsort(-true.sum(0), kind="stable")[:MOST_LABELS])
    if served.graph.multilabel:
        missed, extra = true & ~said, said & ~true
        counts = missed.T.astype(np.int64) @ extra.astype(np.int64)
        counts[np.diag_indices(len(counts))] = (true & said).sum(0)
    else:
        counts = true.T.astype(np.int64) @ said.astype(np.int64)
    return schemas.Confusion(
        labels=[served.graph.labels[i] for i in common] if mask.any() else [],
        counts=counts[np.ix_(common, common)].tolist() if mask.any() else [],
    )


def _by_label(served: ServedRun, mask: Flags) -> list[schemas.ByLabel]:
    true, said = served.table.true[mask], served.table.predicted[mask]
    found = []
    for i, label in enumerate(served.graph.labels if mask.any() else []):
        hits, there, given = (int(x[:, i].sum()) for x in (true & said, true, said))
        found.append(
            schemas.ByLabel(
                label=label,
                nodes=there,
                given=given,
                precision=hits / max(1, given),
                recall=hits / max(1, there),
                f1=2 * hits / max(1, there + given),
            )
        )
    return found


def _by_degree(served: ServedRun, mask: Flags) -> list[schemas.ByDegree]:
    table, nodes = served.table, np.flatnonzero(mask)
    degree = table.degree[nodes]
    shares = np.linspace(0, 1, QUARTERS + 1)[1:]
    bounds = np.unique(np.quantile(degree, shares)).tolist() if len(nodes) else []
    found, before = [], -1.0
    for bound in bounds:
        some = nodes[(degree > before) & (degree <= bound)]
        before = bound
        if len(some):
            said, true = (torch.from_numpy(x[some]) for x in (table.predicted, table.true))
            found.append(
                schemas.ByDegree(
                    least=int(table.degree[some].min()),
                    most=int(table.degree[some].max()),
                    nodes=len(some),
                    micro=100 * f1(said, true).micro,
                )
            )
    return found


def _parts(served: ServedRun) -> dict[str, float]:
    """Return the mean absolute contribution of each part of the model to a logit."""
    if served.explainer is None:
        return {}
    opened = served.explainer.open
    deep = opened.logits - sum(opened.others.values(), start=torch.zeros_like(opened.logits))
    parts = ({"metapaths": deep} if opened.paths else {}) | opened.others
    return {name: float(logits.abs().mean()) for name, logits in parts.items()}


class Pair:
    """Two runs on the same nodes and labels, side by side."""

    def __init__(self, a: ServedRun, b: ServedRun) -> None:
        self.a, self.b = a, b
        if a.graph.labels != b.graph.labels or not _same_nodes(a, b):
            raise NotSupported(f"{a.name} and {b.name} differ in their target nodes or labels")
        self.differ: Flags = (a.table.predicted != b.table.predicted).any(1)
        self.distance = np.abs(a.table.p - b.table.p).max(1, initial=0.0)
        self.order = np.argsort(-self.distance, kind="stable")
        right = [t.labelled & ~t.wrong for t in (a.table, b.table)]
        self.a_right: Flags = right[0] & b.table.wrong
        self.b_right: Flags = right[1] & a.table.wrong

    def compare(self, which: Differ, offset: int, limit: int) -> schemas.Comparison:
        """Return where they differ, largest distance first."""
        part = _part(self.a)
        mask = _measured(self.a, part) & _measured(self.b, part)
        right = ~self.a.table.wrong & ~self.b.table.wrong & mask
        chosen = {
            "differ": self.differ,
            "all": np.ones_like(self.differ),
            "a_right": self.a_right,
            "b_right": self.b_right,
        }[which]
        nodes = self.order[chosen[self.order]]
        a_right, b_right = (int((x & mask).sum()) for x in (self.a_right, self.b_right))
        return schemas.Comparison(
            part=part if mask.any() else "",
            nodes=int(mask.sum()),
            both_right=int(right.sum()),
            a_right=a_right,
            b_right=b_right,
            both_wrong=int(mask.sum()) - int(right.sum()) - a_right - b_right,
            differ=int(self.differ.sum()),
            total=len(nodes),
            offset=offset,
            rows=[self.row(node) for node in nodes[offset : offset + limit].tolist()],
        )

    def row(self, node: int) -> schemas.Difference:
        """Return what both say of a node."""
        table, targets = self.a.table, self.a.graph.targets
        said = [
            schemas.Said(predicted=t.names(t.predicted[node]), probabilities=t.p[node].tolist())
            for t in (self.a.table, self.b.table)
        ]
        return schemas.Difference(
            node=node,
            id=targets.identity(node),
            name=targets.title(node),
            split=table.split_of(node),
            labels=table.names(table.true[node]),
            a=said[0],
            b=said[1],
            distance=float(self.distance[node]),
        )


def _same_nodes(a: ServedRun, b: ServedRun) -> bool:
    if a.index is b.index:
        return True
    mine, theirs = a.graph.targets, b.graph.targets
    if a.graph.target != b.graph.target or mine.num_nodes != theirs.num_nodes:
        return False
    texts = ((mine.ids, theirs.ids), (mine.names, theirs.names))
    return all((x is None) == (y is None) and list(x or ()) == list(y or ()) for x, y in texts)

"""How good a run is and where it is weak, and where two runs differ."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

import numpy as np

from hanme.errors import HanmeError
from hanme.runs import Run, RunConfig
from hanme.runs.listing import ListedRun
from hanme.runs.results import rule_name
from hanme.runs.suspicion import suspicion_lines
from hanme.serve.served import Json, NotSupported, ServedRun
from hanme.serve.table import Flags

MOST_LABELS = 40
"""Maximum number of rows of the confusion matrix: the most common labels."""
RARE = 10
"""Labels of fewer measured nodes are rare: a single node moves their scores by more than 10 %."""
MOST_EPOCHS = 1000
"""Maximum number of points of a training curve: more than a screen can show."""

MOST_DIFFERENCES = 20
"""Maximum number of settings by which two runs are told apart: more do not fit into a table."""

Differ = Literal["differ", "all", "a_right", "b_right"]


def overview(served: ServedRun) -> Json:
    """Return scores beside the baselines, reliability, confusion and weak spots."""
    run, part, mask = served.run, _part(served), _measured(served)
    quality = run.result["probabilities"].get(part, {})
    nodes = _nodes(served, part) if part else 0
    return {
        "part": part,
        "nodes": nodes,
        "new": _new(served),
        "suspicion": suspicion_lines(run.result.get("suspicion", {})),
        "scores": _scores(served, part, nodes) if part else [],
        "log_loss": quality.get("log_loss"),
        "roc_auc": quality.get("roc_auc"),
        "average_precision": quality.get("average_precision"),
        "brier": quality.get("brier"),
        "calibration_error": quality.get("error"),
        "reliability": quality.get("reliability", []),  # count, mean probability, share of labels
        "confusion": _confusion(served, mask),
        "by_label": _by_label(served, mask),
        "best_epoch": run.result["best_epoch"],
        "epochs": run.metrics[:: len(run.metrics) // MOST_EPOCHS + 1],
    }


def _part(served: ServedRun) -> Literal["test", "val", "oof", ""]:
    """Return what to measure on: test nodes, or others that nothing was fitted to."""
    if served.run.differs_from_training:
        return ""
    parts: tuple[Literal["test", "val", "oof"], ...] = ("test", "val", "oof")
    return next((part for part in parts if part in served.run.result["probabilities"]), "")


def _nodes(served: ServedRun, part: str) -> int:
    """Return how many nodes a part was measured on."""
    counts = served.run.result.get("counts", {}).get("model", {}).get(part)
    return int(counts["nodes"]) if counts else int(served.graph.split.parts()[part].sum())


def _measured(served: ServedRun) -> Flags:
    """Return the labelled test nodes: final weights or slopes are fitted to all others."""
    mask = np.zeros(len(served.table), bool)
    if _part(served) == "test":
        mask = served.graph.split.test.cpu().numpy() & served.table.labelled
    return mask


def _new(served: ServedRun) -> dict[str, int]:
    """Count the nodes without a label, and those among them that are confident or to review."""
    new, confident = ~served.table.labelled, served.table.confident
    counts = {"nodes": new, "confident": new & confident, "review": new & ~confident}
    return {name: int(flags.sum()) for name, flags in counts.items()}


def _scores(served: ServedRun, part: str, nodes: int) -> list[Json]:
    """Return F1 in percent, with 95 % intervals over nodes where they are known.

    Where a node has one label, micro F1 is the share of correct nodes. ``correct`` is then their
    number, and the interval is Wilson's, which stays wide where few nodes were measured.
    """
    result = served.run.result
    scores = {"model": result["scores"][rule_name(served.run.decision)]}
    scores |= {name: result.get("baselines", {}).get(name, {}) for name in ("linear", "majority")}
    intervals = result.get("intervals", {})
    rows = [
        {"name": name, "intervals": intervals.get(name, {}).get(part, {}), **parts[part]}
        for name, parts in scores.items()
        if parts.get(part)
    ]
    for row in rows if nodes and not served.graph.multilabel else ():
        row["correct"] = round(row["micro"] / 100 * nodes)
        row["intervals"] = row["intervals"] | {"micro": _wilson(row["correct"], nodes)}
    return rows


def _wilson(hits: int, total: int) -> list[float]:
    """Return Wilson's 95 % interval of a share, in percent."""
    square = 1.96**2
    middle = hits + square / 2
    spread = 1.96 * (hits * (total - hits) / total + square / 4) ** 0.5
    return [
        100 * max(0.0, middle - spread) / (total + square),
        100 * min(total + square, middle + spread) / (total + square),
    ]


def _confusion(served: ServedRun, mask: Flags) -> Json:
    """Count nodes by a label that they have (rows) and one that is predicted (columns).

    With several labels per node, the diagonal counts the nodes that have a label and are predicted
    to, and the rest those that have a label, are not predicted to, and are predicted another that
    they have not.
    """
    if not mask.any():
        return {"labels": [], "counts": []}
    true, said = served.table.true[mask], served.table.predicted[mask]
    common = np.sort(np.argsort(-true.sum(0), kind="stable")[:MOST_LABELS])
    if served.graph.multilabel:
        counts = (true & ~said).T.astype(np.int64) @ (said & ~true)
        np.fill_diagonal(counts, (true & said).sum(0))
    else:
        counts = true.T.astype(np.int64) @ said
    labels = [served.graph.labels[i] for i in common]
    return {"labels": labels, "counts": counts[np.ix_(common, common)].tolist()}


def _by_label(served: ServedRun, mask: Flags) -> list[Json]:
    """Return precision, recall and F1 of each label.

    ``predicted``: nodes that it is predicted for; ``hits``: those of them that have it.
    """
    true, said = served.table.true[mask], served.table.predicted[mask]
    hits, nodes, predicted = (x.sum(0) for x in (true & said, true, said))
    columns = {
        "nodes": nodes,
        "predicted": predicted,
        "hits": hits,
        "rare": nodes < RARE,
        "precision": hits / np.maximum(1, predicted),
        "recall": hits / np.maximum(1, nodes),
        "f1": 2 * hits / np.maximum(1, nodes + predicted),
    }
    labels = served.graph.labels if mask.any() else []
    return [
        {"label": label, **{name: column[i].item() for name, column in columns.items()}}
        for i, label in enumerate(labels)
    ]


def listed(one: ListedRun, served: Mapping[str, ServedRun], own: RunConfig | None) -> Json:
    """Describe a run folder; ``differences`` are settings that differ from those of ``own``.

    A run in training has its curve and, where they are known, stage, percentage and seconds left.
    """
    names = [name for name, run in served.items() if run.run.folder == one.folder]
    config = one.config
    differences = config.differences(own) if config and own else []
    curve: list[dict[str, float]] = []
    if one.state in ("training", "unfinished"):
        with suppress(HanmeError, OSError):  # it may be removed meanwhile
            curve = Run.open(one.folder).metrics()
    return {
        "folder": one.folder.name,
        "served": names[0] if names else None,
        "state": one.state,
        "modified": one.modified,
        "model": config.model.name if config else None,
        "graph": config.data.name if config else None,
        "recipe": config.training.recipe if config else None,
        "seed": config.training.seed if config else None,
        "reviewed": len(config.data.reviewed) if config else 0,
        "epochs": one.epochs,
        "scores": one.scores,
        "message": one.message,
        "stage": one.stage,
        "percent": one.percent,
        "seconds_left": one.seconds_left,
        "differences": [d for d in differences if not d.startswith("data.reviewed")][
            :MOST_DIFFERENCES
        ],
        "curve": curve[:: len(curve) // MOST_EPOCHS + 1],
    }


def compare(a: ServedRun, b: ServedRun, which: Differ, offset: int, limit: int) -> Json:
    """Return where two runs differ, and which is right on how many nodes of a part.

    Rows are sorted by ``distance``, the largest difference of a probability.
    """
    mine, theirs = (
        (run.graph.target, run.graph.labels, nodes.num_nodes, nodes.ids, nodes.names)
        for run, nodes in ((a, a.graph.targets), (b, b.graph.targets))
    )
    if mine != theirs:
        raise NotSupported(f"{a.name} and {b.name} differ in their target nodes or labels")
    distance = np.abs(a.table.p - b.table.p).max(1, initial=0.0)
    known, wrong = a.table.labelled & b.table.labelled, (a.table.wrong, b.table.wrong)
    chosen = {
        "differ": (a.table.predicted != b.table.predicted).any(1),
        "all": np.ones(len(distance), bool),
        "a_right": known & ~wrong[0] & wrong[1],
        "b_right": known & wrong[0] & ~wrong[1],
    }
    order = np.argsort(-distance, kind="stable")
    nodes = order[chosen[which][order]]
    mask = _measured(a) & _measured(b)
    return {
        "part": _part(a) if mask.any() else "",
        "nodes": int(mask.sum()),
        "both_right": int((mask & ~wrong[0] & ~wrong[1]).sum()),
        "a_right": int((mask & chosen["a_right"]).sum()),
        "b_right": int((mask & chosen["b_right"]).sum()),
        "both_wrong": int((mask & wrong[0] & wrong[1]).sum()),
        "differ": int(chosen["differ"].sum()),
        "total": len(nodes),
        "rows": [
            {"a": a.table.row(n), "b": b.table.row(n), "distance": float(distance[n])}
            for n in nodes[offset : offset + limit].tolist()
        ],
    }

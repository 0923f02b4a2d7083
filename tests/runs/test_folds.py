"""Cross-fitting: a model without each fold, their mean as one run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from hanme import Classifier, Graph
from hanme.data import load
from hanme.errors import HanmeError
from hanme.explain import Explainer
from hanme.explain.change import WhatIf
from hanme.graph.splits import without_fold
from hanme.runs import OpenedRun, Run, RunConfig, train

CONFIG = RunConfig.make(
    {
        "data": {"name": "planted", "options": {"movies": 200}},
        "model": {"name": "hanme", "options": {"metapaths": ["movie-actor-movie"], "heads": 2}},
        "training": {"recipe": "default", "folds": 3, "epochs": 3},
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(CONFIG, tmp_path_factory.mktemp("folds") / "run").folder


def planted() -> Graph:
    return load("planted", options={"movies": 200})


def test_folds_divide_the_labelled_nodes_and_leave_the_test_part() -> None:
    graph = planted()
    splits = [without_fold(graph.split, graph.y, k, 3, seed=1) for k in (1, 2, 3)]
    assert torch.equal(torch.stack([s.val for s in splits]).sum(0) == 1, graph.split.labelled)
    for split in splits:
        assert torch.equal(split.train | split.val, graph.split.labelled)
        assert torch.equal(split.test, graph.split.test)
    one = graph.y.argmax(1)  # as if nodes had one label each
    counts = torch.stack(
        [one[without_fold(graph.split, one, k, 3, seed=1).val].bincount() for k in (1, 2, 3)]
    )
    assert (counts.amax(0) - counts.amin(0)).max() <= 1
    with pytest.raises(HanmeError, match="folds"):
        without_fold(graph.split, graph.y, 1, 10_000, seed=1)


def test_the_mean_of_the_folds_is_the_prediction(folder: Path) -> None:
    found = OpenedRun.open(folder).predict().logits
    each = [OpenedRun.open(folder / f"fold-{k}").predict().logits for k in (1, 2, 3)]
    assert torch.allclose(found, torch.stack(each).mean(0), atol=1e-5)
    result = Run.open(folder).result()
    assert result["folds"] == 3
    assert OpenedRun.open(folder).evaluate() == result["scores"]
    assert "train" not in result["scores"]["decided"]
    assert {"majority", "linear"} == set(result["baselines"])


def test_a_labelled_node_is_scored_by_the_model_that_has_not_seen_it(folder: Path) -> None:
    graph, run = planted(), Run.open(folder)
    joined = torch.zeros(len(graph.y), len(graph.labels))
    for number, fold in enumerate(run.folds, start=1):
        part = without_fold(graph.split, graph.y, number, 3, seed=0).val
        joined[part] = fold.outputs()["model"][0][part]
    chosen = run.decision().labels(joined, multilabel=True)
    both = (chosen & graph.label_matrix)[graph.split.labelled].sum()
    total = chosen[graph.split.labelled].sum() + graph.label_matrix[graph.split.labelled].sum()
    micro = run.result()["scores"]["decided"]["val"]["micro"]
    assert micro == pytest.approx(float(200 * both / total), abs=1e-4)


@pytest.mark.slow
def test_processes_and_interruptions_change_nothing(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "fold-2")  # as after a kill between folds 1 and 2, 3 being through
    (copy / "result.json").unlink()
    with pytest.raises(HanmeError, match="--resume"):
        train(CONFIG, copy)
    train(CONFIG, copy, resume=True, processes=2)
    again, before = (json.loads((f / "result.json").read_text()) for f in (copy, folder))
    assert again["scores"] == before["scores"]
    assert torch.equal(
        OpenedRun.open(copy).predict().logits, OpenedRun.open(folder).predict().logits
    )


def test_explanations_are_means_and_add_up(folder: Path) -> None:
    opened = OpenedRun.open(folder)
    graph, model = opened.graph, opened.model
    assert len(model.folds) == 3
    explainer = Explainer(model, graph)
    node = int(graph.split.test.nonzero()[0])
    found = explainer.explain(node, top=10_000)
    for label, logit in found.logits.items():
        parts = sum(instance.parts[label] for instance in found.instances)
        others = sum(given[label] for given in found.others.values())
        assert parts + others == pytest.approx(logit, abs=1e-3)
    alone = [Explainer(each, graph).explain(node, top=10_000) for each in model.folds]
    first = found.instances[0]
    same = [next(i for i in e.instances if i.nodes == first.nodes) for e in alone]
    label = found.label
    assert first.parts[label] == pytest.approx(sum(i.parts[label] for i in same) / 3, abs=1e-6)
    assert first.attention == pytest.approx(sum(i.attention for i in same) / 3, abs=1e-6)
    logits, _ = WhatIf(explainer.open, graph).logits(node)
    assert torch.allclose(logits.float(), explainer.open.logits[node], atol=1e-4)


def test_the_estimator_takes_folds(tmp_path: Path) -> None:
    found = Classifier(training={"folds": 2, "epochs": 2}, options={"heads": 2}).fit(planted())
    assert found.score("val") > 0.4
    found.save(tmp_path / "saved")
    loaded = Classifier.load(tmp_path / "saved")
    assert (loaded.predict_proba() == found.predict_proba()).all()


@pytest.mark.parametrize("folds", [1, -2, 101])
def test_wrong_numbers_of_folds_are_refused(folds: int) -> None:
    with pytest.raises(HanmeError, match=r"training"):
        RunConfig.make(CONFIG.model_dump() | {"training": {"folds": folds}})

"""Scores hold on new rows: nothing is selected, fitted or calibrated on rows that judge it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme import Classifier
from hanme.data import planted
from hanme.decision.calibration import shrinkage
from hanme.decision.losses import base_rate_logits, node_losses
from hanme.graph import Graph, Split
from hanme.graph.splits import GROUPS
from hanme.linear import select_blocks
from hanme.linear.matrices import GraphMatrices
from hanme.linear.trees import screen_columns
from hanme.nn import HANME
from hanme.nn.batch import Batch
from hanme.training import TrainingConfig, ValidationNodes, base_learners, finalize, fit_base
from hanme.training.base_learners import FitSets, fit_base_learners


def noise(rows: int, width: int, seed: int, *, fresh: int = 4000, labels: int = 2) -> Graph:
    """Numbers that say nothing of the labels; all rows beyond the first are for testing."""
    random = torch.Generator().manual_seed(seed)
    size = rows + fresh
    data, part = HeteroData(), torch.full((size,), 2)
    part[:rows] = (torch.arange(rows) % 5 == 0).long()
    data["row"].x = torch.randn(size, width, generator=random)
    data["row"].y = torch.randint(0, labels, (size,), generator=random)
    return replace(Graph.from_hetero(data), split=Split.of(part))


@pytest.mark.parametrize(("rows", "labels"), [(300, 2), (100, 2), (400, 5)])
def test_noise_is_predicted_by_the_base_rate(rows: int, labels: int) -> None:
    graph, test = noise(rows, 150, 1, labels=labels), slice(rows, None)
    base = fit_base(graph, TrainingConfig(seed=1))
    rates = base_rate_logits(graph.y[graph.split.train], labels)
    constant = float(node_losses(rates.expand(4000, -1), graph.y[test]).mean())
    assert float(node_losses(base.logits[test], graph.y[test]).mean()) < 1.02 * constant
    seen = base.fit.out_of_fold
    y = graph.y[seen.nodes]
    constant = float(node_losses(rates.expand(len(y), -1), y).mean())
    assert float(node_losses(seen.logits, y).mean()) > 0.99 * constant


def test_what_a_fold_selects_ignores_the_labels_that_it_leaves_out() -> None:
    graph = planted(movies=200, seed=1).with_features("given")
    sets, matrices = FitSets.of(graph, 0), GraphMatrices(graph)
    y = graph.y.clone()
    y[sets.held_out[0]] = 1 - y[sets.held_out[0]]
    other = replace(graph, y=y)
    before, after = (screen_columns(g, sets.masks, 0, limit=9) for g in (graph, other))
    assert before[0] == after[0]
    assert before[1:] != after[1:]
    columns = [one.columns for one in before]
    before, after = (select_blocks(g, sets.masks, 0, matrices, columns) for g in (graph, other))
    assert before[0] == after[0]
    assert before[1:] != after[1:]


@pytest.mark.parametrize("many", [False, True])
def test_base_learners_read_no_validation_label(
    many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if many:
        monkeypatch.setattr(base_learners, "MAX_GRAM_NODES", 50)
    graph, config = planted(movies=300, seed=1).with_features("given"), TrainingConfig(refit=False)
    y = graph.y.clone()
    y[graph.split.val] = 1 - y[graph.split.val]
    found, again = (fit_base_learners(replace(graph, y=each), config) for each in (graph.y, y))
    assert torch.equal(found.held_out.predict(graph), again.held_out.predict(graph))
    assert torch.equal(found.out_of_fold.logits, again.out_of_fold.logits)


class Constant(HANME):
    """A network whose logits are given."""

    logits: Tensor

    def forward(self, batch: Batch) -> Tensor:
        super().forward(batch)
        return self.logits


def network(graph: Graph, logits: Tensor) -> Constant:
    made = Constant(
        graph.metadata(),
        graph.target,
        graph.metapaths,
        len(graph.labels),
        in_channels=graph.widths,
        hidden_channels=8,
        heads=2,
    )
    made.logits = logits
    return made


def many_to_validate() -> Graph:
    graph = planted(movies=1500, seed=1).with_features("given")
    none = torch.zeros_like(graph.split.test)
    return replace(graph, split=Split(graph.split.train, graph.split.val | graph.split.test, none))


def test_thresholds_read_no_test_row() -> None:
    graph = planted(movies=300, seed=1).with_features("given")
    logits = torch.randn(graph.y.shape, generator=torch.Generator().manual_seed(0))
    moved = torch.where(graph.split.test[:, None], logits + 3, logits)
    config = TrainingConfig(linear=False)
    a, b = (finalize(network(graph, x), graph, config).outputs.decision for x in (logits, moved))
    assert a == b


@pytest.mark.parametrize("linear", [False, True])
def test_rows_that_select_the_epoch_are_never_scored(linear: bool) -> None:
    """The logits give the labels of the selecting rows away, and are noise elsewhere."""
    graph = many_to_validate()
    config = TrainingConfig(linear=linear, trees=False)
    nodes = ValidationNodes.of(graph, config, network=True, stack=linear)
    random = torch.randn(graph.y.shape, generator=torch.Generator().manual_seed(0))
    logits = torch.where(nodes.selection[:, None], 8 * graph.y - 4, random)
    trained = finalize(network(graph, logits), graph, config, stack=linear)
    judged = trained.outputs.judged
    assert judged is not None
    assert judged.part == "val"
    assert torch.equal(judged.nodes, nodes.others)
    assert not nodes.selection[judged.nodes].any()
    if not linear:  # calibration sees that it is noise
        assert trained.outputs.decision.slope < 0.1


def test_what_is_fitted_to_one_half_scores_the_other() -> None:
    """With slopes of their own labels, noise would look better than the base rate."""
    random = torch.Generator().manual_seed(0)
    graph = many_to_validate()
    graph = replace(graph, y=torch.randint(0, 5, (1500,), generator=random))
    logits = 4 * torch.randn(1500, 5, generator=random)
    judged = finalize(network(graph, logits), graph, TrainingConfig(linear=False)).outputs.judged
    assert judged is not None
    y = graph.y[judged.nodes]
    rates = base_rate_logits(y, 5).expand(len(y), -1)
    assert float(node_losses(judged.p.log(), y).mean()) > float(node_losses(rates, y).mean())


def test_few_validation_rows_score_base_learners_out_of_fold() -> None:
    graph = planted(movies=300, seed=1).with_features("given")
    run = Classifier(metapaths=graph.metapaths, training={"epochs": 4}).fit(graph).run_
    result = run.result
    if run.model.network is not None:
        assert "val" not in result["probabilities"]
        assert "oof" not in result["probabilities"]
    assert set(result["baselines"]["linear"]) == {"oof", "test"}
    alone = Classifier(model="linear").fit(graph).scores()
    assert set(alone) == {"train", "oof", "test"}


def test_the_paper_s_recipe_reports_no_score_of_the_rows_that_chose_its_epoch() -> None:
    graph = planted(movies=300, seed=1).with_features("given")
    options = {"recipe": "paper", "epochs": 2}
    found = Classifier(metapaths=graph.metapaths, training=options).fit(graph)
    assert set(found.scores()) == {"train", "test"}
    assert found.run_.result["selection"]["micro"] > 0


def test_unlabelled_nodes_under_the_test_mask_are_not_mistakes() -> None:
    data = HeteroData()
    data["row"].x, data["row"].y = torch.randn(60, 3), torch.arange(60) % 2
    part = torch.arange(60) % 3
    data["row"].y[part == 2] = -1
    data["row"].y[2] = 1
    for i, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data["row"][name] = part == i
    graph = Graph.from_hetero(data)
    assert graph.split.test.nonzero().flatten().tolist() == [2]
    assert graph.provenance.notes == ["test_mask: 19 nodes have no label and are not scored"]


def test_shrinkage_keeps_what_helps_and_nothing_else() -> None:
    random = torch.Generator().manual_seed(0)
    y, rates = torch.arange(400) % 2, torch.tensor([0.5, 0.5]).log()
    useful = torch.stack([-1.5 * (2 * y - 1), 1.5 * (2 * y - 1)], 1).float()
    assert shrinkage(useful, y, rates) > 0.98
    found = [shrinkage(torch.randn(400, 2, generator=random), y, rates) for _ in range(20)]
    assert np.mean(found) < 0.02
    assert shrinkage(torch.zeros(0, 2), y[:0], rates) == 1


def test_groups_of_near_duplicates_are_drawn_as_units() -> None:
    """Parts have their shares of the groups, whether these touch the training part or not."""
    group = np.repeat(np.arange(300), 2)
    label = np.where(group % 3 == 0, "a", "b")
    frame = pd.DataFrame({"id": range(600), "label": label})
    frame["text"] = [f"the {i} of {7 * i}" for i in group]
    columns = {"text": "text"}
    nodes = {"row": {"table": "rows", "id": "id", "label": "label", "features": columns}}
    for rule in ({}, {"test": "id < 120"}):
        config = (
            {"target": "row", "nodes": nodes, "split": rule}
            if rule
            else {
                "target": "row",
                "nodes": nodes,
            }
        )
        graph = Graph.from_frames({"rows": frame}, config)
        parts = torch.stack(list(graph.split)).long().argmax(0).numpy()
        assert (parts[::2] == parts[1::2]).all()
        shares = np.bincount(parts, minlength=3) / 600
        assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.06)
        folds = FitSets.of(graph, 0)
        for fold in folds.held_out:
            assert set(fold.tolist()) == {2 * (i // 2) for i in fold.tolist()} | {
                2 * (i // 2) + 1 for i in fold.tolist()
            }


def test_near_duplicates_stay_in_one_fold_where_the_split_is_given() -> None:
    frame = pd.DataFrame({"id": range(400), "label": np.where(np.arange(400) % 3 < 2, "a", "b")})
    frame["text"] = [f"the {i} of {7 * i}" for i in np.repeat(np.arange(200), 2)]
    frame["part"] = np.repeat(np.array(["train", "train", "train", "val", "test"]), 2)[
        np.arange(400) % 10
    ]
    nodes = {"row": {"table": "rows", "id": "id", "label": "label", "split": "part"}}
    nodes["row"]["features"] = {"text": "text"}
    graph = Graph.from_frames({"rows": frame}, {"target": "row", "nodes": nodes})
    for fold in FitSets.of(graph, 0).held_out:
        assert {i // 2 for i in fold.tolist()} == {i // 2 for i in fold.tolist() if i % 2}


@pytest.mark.parametrize("sizes", [(9,), (4, 1), (5, 1, 1), (3, 3, 3)])
def test_groups_that_leave_few_folds_are_trained_on_all_the_same(sizes: tuple[int, ...]) -> None:
    """Whatever folds and halves are left, something is selected and something is predicted."""
    graph = planted(movies=300, seed=1).with_features("given")
    train = graph.split.train.nonzero().flatten()[: sum(sizes)]
    val = graph.split.val.nonzero().flatten()[:2]
    group = torch.arange(300) + 1000
    group[train] = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    group[val] = 999
    part = torch.full((300,), -1)
    part[train], part[val] = 0, 1
    movies = replace(graph.targets, extra={GROUPS: group})
    few = replace(graph, nodes={**graph.nodes, "movie": movies}, split=Split.of(part))
    for seed in (0, 1):
        config = TrainingConfig(seed=seed, smoothing=False)
        nodes = ValidationNodes.of(few, config, network=True, stack=True)
        assert nodes.selection.any()
        assert finalize(None, few, config).outputs.logits.isfinite().all()

"""Training on real models: what is kept, what is seen, what comes out."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from hanme import Classifier
from hanme.data import planted
from hanme.decision import Decision
from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.nn import FUSIONS, HAN, HANME, Fusion
from hanme.nn.batch import Batch
from hanme.testing import check_seed
from hanme.training import LTS, Epoch, Trainer, TrainingConfig, build_seeded
from hanme.training.metrics import scores

SMALL = {"hidden_channels": 16, "heads": 2}


def trainer(graph=None, model=HANME, **config) -> Trainer:
    graph = planted(movies=120) if graph is None else graph
    settings = TrainingConfig(**{"recipe": "paper", "epochs": 12, **config})
    net, random = build_seeded(
        lambda: model(graph.metadata(), "movie", graph.metapaths, 5, **SMALL), graph, settings.seed
    )
    return Trainer(net, graph, settings, random=random)


def test_the_best_epoch_s_weights_are_kept() -> None:
    run = trainer(epochs=40)
    seen = []
    run.run(seen.append)
    best = max(seen, key=lambda epoch: epoch.val_macro)
    assert run.progress.best_epoch == best.epoch < 40
    found = scores(run.logits(), run.graph.y, run.graph.split.parts(), Decision())
    assert found["val"] == (best.val_micro, best.val_macro)
    assert found["train"] == (best.train_micro, best.train_macro)


def test_the_last_epoch_can_be_kept_instead() -> None:
    run = trainer(epochs=7, patience=1, select="last")
    seen = []
    run.run(seen.append)
    assert run.progress.best_epoch == 7
    found = scores(run.logits(), run.graph.y, run.graph.split.parts(), Decision())
    assert found["val"] == (seen[-1].val_micro, seen[-1].val_macro)


def test_scores_can_be_taken_every_few_epochs() -> None:
    each, few = trainer(epochs=12), trainer(epochs=12, every=5)
    all_epochs, some = [], []
    each.run(all_epochs.append)
    few.run(some.append)
    assert [epoch.epoch for epoch in some] == [5, 10, 12]
    for epoch in some:  # the same training, looked at less often
        assert replace(epoch, seconds=0) == replace(all_epochs[epoch.epoch - 1], seconds=0)
    assert few.progress.best_epoch == max(some, key=lambda epoch: epoch.val_macro).epoch


def test_the_validation_loss_can_choose() -> None:
    run = trainer(epochs=40, select="loss")
    val, y, losses, seen = run.graph.split.val, run.graph.y, [], []

    def look(epoch: Epoch) -> None:
        seen.append(epoch.val_loss)
        losses.append(float(node_losses(run.logits()[val], y[val]).mean()))

    run.run(look)
    assert seen == losses
    assert run.progress.best_epoch == losses.index(min(losses)) + 1
    assert float(node_losses(run.logits()[val], y[val]).mean()) == min(losses)


def test_the_loss_chooses_once_lts_has_come_to_all_nodes() -> None:
    lts = LTS(start=0.1, until=6)
    run = trainer(epochs=8, select="loss", lts=lts)
    run.step()
    assert run.progress.best_epoch == 1  # there is always something to go back to
    seen = []
    run.run(seen.append)
    late = [epoch for epoch in seen if epoch.epoch >= 6]
    assert run.progress.best_epoch == min(late, key=lambda epoch: epoch.val_loss).epoch


def test_weights_without_a_finite_score_are_kept_where_there_are_no_others() -> None:
    run = trainer(epochs=1, select="loss", lr=1e30)
    seen = []
    run.run(seen.append)
    assert not math.isfinite(seen[0].val_loss)
    assert run.progress.best_epoch == 1


def test_a_step_after_the_last_epoch_trains_on() -> None:
    run = trainer(epochs=2, every=2)
    assert [run.step().epoch, run.step().epoch] == [2, 3]


@pytest.mark.parametrize("mask", ["train", "val"])
def test_a_node_without_a_label_is_not_trained_or_validated_on(mask: str) -> None:
    graph = planted(movies=120)
    graph.y = graph.y.argmax(1)
    graph.y[graph.split.parts()[mask].nonzero()[0]] = -1
    with pytest.raises(HanmeError, match=f"movie: a node in the {mask} part has no label"):
        trainer(graph)


def test_patience_begins_where_lts_ends() -> None:
    run = trainer(epochs=500, patience=4, lr=1e-12, lts=LTS(until=20))  # nothing ever gets better
    run.run()
    assert run.progress.epoch == 24


@pytest.mark.parametrize(("epochs", "until"), [(1, 2), (50, 25), (300, 100)])
def test_lts_comes_to_all_nodes_half_way_where_it_does_not_say(epochs: int, until: int) -> None:
    for lts in (LTS(pace="root"), {"pace": "root"}):
        config = TrainingConfig(recipe="paper", epochs=epochs, lts=lts)
        assert config.lts == LTS(pace="root", until=until)
    assert TrainingConfig(recipe="paper", epochs=epochs, lts=LTS(until=100)).lts == LTS(until=100)


def test_the_least_loss_is_that_of_the_last_epoch_where_lts_never_comes_to_all_nodes() -> None:
    run = trainer(epochs=6, select="loss", lts=LTS(until=100))
    run.run()
    assert run.progress.best_epoch == 6


def test_stops_when_patience_runs_out() -> None:
    run = trainer(epochs=500, patience=4)
    run.run()
    assert run.progress.epoch == run.progress.best_epoch + 4 < 500


def test_one_seed_gives_one_result_bit_for_bit() -> None:
    first, second, other = trainer(), trainer(), trainer(seed=1)
    for run in (first, second, other):
        run.run()
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first.logits(), other.logits())


@pytest.mark.parametrize("lts", [None, LTS(until=5)])
def test_training_sees_no_label_outside_the_training_nodes(lts: LTS | None) -> None:
    graph = planted(movies=120)
    y = torch.where(graph.split.train[:, None], graph.y, 1 - graph.y)
    runs = [trainer(graph, lts=lts) for graph in (graph, replace(graph, y=y))]
    for _ in range(8):
        losses = [run.step().loss for run in runs]
        assert losses[0] == losses[1]
    for a, b in zip(*(run.model.parameters() for run in runs), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("pace", ["linear", "root", "geometric"])
@pytest.mark.parametrize("model", [HANME, HAN])
def test_lts_trains_on_the_easiest_share(model: type, pace: str) -> None:
    run = trainer(model=model, lts=LTS(pace=pace, start=0.2, until=6), epochs=8)
    shares = [run.step().share for _ in range(8)]
    assert shares[5:] == [1, 1, 1]
    assert all(0.2 < share < 1 for share in shares[:5])


def test_lts_loss_is_the_mean_of_the_least_losses() -> None:
    run = trainer(lts=LTS(start=0.25, until=100))
    torch.set_rng_state(run.state()[0]["random"])
    run.model.train()
    graph = run.graph
    logits = run.model(Batch.of(graph))
    losses = node_losses(logits[graph.split.train], graph.y[graph.split.train]).sort().values
    expected = losses[: -(-int(0.2575 * 10000) * len(losses) // 10000)].mean()
    assert run.step().loss == pytest.approx(float(expected.detach()))


def test_state_can_be_taken_out_and_put_back() -> None:
    whole, first, second = (trainer(epochs=12) for _ in range(3))
    whole.run()
    for _ in range(5):
        first.step()
    tensors, numbers = first.state()
    copy = {key: value.clone() for key, value in tensors.items()}
    first.step()  # must not disturb what was taken out
    second.load_state(copy, numbers)
    second.run()
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert whole.progress == second.progress


def test_a_loss_that_is_no_number_is_said_so() -> None:
    with pytest.raises(HanmeError, match=r"epoch \d+: the loss is .*smaller lr"):
        trainer(lr=1e30, epochs=50).run()


def test_no_validation_node() -> None:
    graph = planted(movies=120)
    graph.split.val[:] = False
    with pytest.raises(HanmeError, match="movie: no node is in the val part"):
        trainer(graph)


def test_what_is_drawn_elsewhere_changes_nothing() -> None:
    first, second = trainer(), trainer()
    first.run()
    second.run(lambda epoch: torch.rand(3))
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_weights_a_model_comes_with_are_kept() -> None:
    run = trainer()
    before = run.logits()
    again = Trainer(run.model, run.graph, run.config)
    assert torch.equal(again.logits(), before)


def test_weights_and_dropout_are_drawn_by_seed() -> None:
    losses = [trainer(seed=seed).step().loss for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize("model", [HANME, HAN])
def test_batches_of_roots_learn_as_well(model: type) -> None:
    graph = planted(movies=400, guests=0, noise=0, genres=3)
    config = TrainingConfig(recipe="paper", epochs=25, lr=0.01, batch_size=16)
    net, random = build_seeded(
        lambda: model(graph.metadata(), "movie", graph.metapaths, 3, **SMALL, dropout=0.1), graph, 3
    )
    run = Trainer(net, graph, config, random=random)
    epochs: list[Epoch] = []
    run.run(epochs.append)
    assert epochs[-1].loss < 0.7 * epochs[0].loss
    assert max(epoch.val_macro for epoch in epochs) > 0.75


class Drawn(Fusion):
    """Draws weights in all ways there are: a bare parameter, ``_reset_parameters``, a layer."""

    def __init__(self, vectors: int, channels: int) -> None:
        super().__init__(vectors, channels)
        self.scale = nn.Parameter(torch.randn(channels))
        self.attention = nn.MultiheadAttention(channels, 2, batch_first=True)
        self.lin = nn.Linear(channels, channels)

    def forward(self, vectors):
        tokens = torch.stack(list(vectors), 1)
        return self.lin(self.attention(tokens, tokens, tokens)[0].mean(1) * self.scale)


def test_all_weights_are_drawn_from_the_seed() -> None:
    graph = planted(movies=60, genres=3)
    options = {"fusion": Drawn, **SMALL}

    def build() -> HANME:
        return HANME(graph.metadata(), "movie", graph.metapaths, 3, **options)

    check_seed(build, graph)


def test_runs_with_modules_of_others_repeat() -> None:
    """Whatever was drawn before, in this process."""
    graph, weights = planted(movies=60, genres=3), []
    FUSIONS["drawn"] = Drawn
    try:
        for drawn_before in (1, 2):
            torch.manual_seed(drawn_before)
            options, training = {"fusion": "drawn", **SMALL}, {"recipe": "paper", "epochs": 2}
            run = Classifier(options=options, training=training).fit(graph).run_
            weights.append(run.model.network.state_dict())
    finally:
        del FUSIONS["drawn"]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name

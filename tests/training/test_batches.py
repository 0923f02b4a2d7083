"""Mini-batches of roots: the same numbers as the whole graph, in any parts."""

import inspect
from pathlib import Path

import pytest
import torch

from hanme.common.progress import listening
from hanme.data import planted
from hanme.data.store.open import open_store
from hanme.data.store.write import write_store
from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.nn import MODELS, Batch, Model
from hanme.runs import RunConfig, build_network, with_metapaths
from hanme.runs.train import prepare
from hanme.training import LTS, Trainer, TrainingConfig, build_seeded
from hanme.training.batches import logits_of, prefetched, shuffled, update_running_means

TINY = {"movies": 90, "genres": 3}
BATCHED = ["hanme", "han", "magnn", "gat", "magna"]


def model_of(name: str, graph, **changes):
    known = inspect.signature(MODELS[name]).parameters
    small = {"hidden_channels": 16, "heads": 2, **changes}
    options = {key: value for key, value in small.items() if key in known}
    values = {
        "data": {"name": "planted"},
        "model": {"name": name, "options": with_metapaths(name, options, graph)[1]},
    }
    return build_network(RunConfig.make(values).model, graph)


def trainer(name: str = "hanme", graph=None, **config) -> Trainer:
    graph = planted(**TINY) if graph is None else graph
    settings = TrainingConfig(
        **{"recipe": "paper", "epochs": 4, "lr": 0.01, "batch_size": 16, **config}
    )
    model, random = build_seeded(lambda: model_of(name, graph), graph, settings.seed)
    return Trainer(model, graph, settings, random=random)


def weights(run: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in run.model.state_dict().items()}


@pytest.mark.parametrize("name", BATCHED)
def test_batches_give_the_logits_of_the_whole_graph(name: str) -> None:
    graph = planted(**TINY)
    run = trainer(name, graph)
    run.step()
    whole = logits_of(run.model, graph)
    for size in (1, 7, 90):
        found = logits_of(run.model, graph, batch_size=size)
        torch.testing.assert_close(found, whole, atol=1e-5, rtol=1e-5)
    some = torch.tensor([5, 3, 80])
    torch.testing.assert_close(logits_of(run.model, graph, some, batch_size=2), whole[some])


@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_of_all_roots_has_the_gradients_of_the_whole_graph(name: str) -> None:
    graph = planted(**TINY)
    model, _ = build_seeded(
        lambda: model_of(name, graph, dropout=0.0, attention_dropout=0.0, feature_dropout=0.0),
        graph,
        3,
    )
    train, every = graph.split.train, torch.randperm(90, generator=torch.Generator().manual_seed(1))
    found = []
    for roots in (None, every):
        model.train(True).zero_grad()
        out = model(Batch.of(graph, roots))
        out = out if roots is None else out[every.argsort()]
        node_losses(out[train], graph.y[train]).mean().backward()
        found.append({k: p.grad.clone() for k, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for name_, grad in found[0].items():
        torch.testing.assert_close(found[1][name_], grad, atol=1e-5, rtol=1e-4)


def test_an_epoch_s_order_covers_the_training_nodes_and_is_drawn_by_seed_and_epoch() -> None:
    nodes = torch.arange(5, 50)
    first = shuffled(nodes, 1, 1)
    assert first.sort().values.equal(nodes)
    assert first.equal(shuffled(nodes, 1, 1))
    assert not first.equal(shuffled(nodes, 1, 2))
    assert not first.equal(shuffled(nodes, 2, 1))


def test_a_model_without_anything_to_prepare_is_trained_in_batches() -> None:
    graph = planted(**TINY)
    batches = list(torch.arange(9).split(4))
    made = prefetched(Model(), graph, batches)
    assert [batch.roots for batch in made] == batches


def test_what_goes_wrong_ahead_of_a_step_is_said() -> None:
    graph = planted(**TINY)
    model = model_of("hanme", graph)
    with pytest.raises(HanmeError, match="from 0 to 89"):
        list(prefetched(model, graph, [torch.tensor([1]), torch.tensor([90])]))


@pytest.mark.parametrize("name", ["hanme", "han", "gat"])
def test_training_on_a_stored_graph_ends_with_the_weights_of_the_graph_in_memory(
    name: str, tmp_path: Path
) -> None:
    """Dropout included: it is drawn by the numbers that nodes have in the whole graph."""
    graph = planted(**TINY, seed=483).with_features("given")
    write_store(graph, tmp_path / "store", features="given")
    stored = open_store(tmp_path / "store")
    runs = [trainer(name, one, epochs=2) for one in (graph, stored)]
    for run in runs:
        run.run()
    for key, value in weights(runs[0]).items():
        # Links come in another order, and Adam divides by gradients that are nearly 0.
        torch.testing.assert_close(weights(runs[1])[key], value, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(runs[1].logits(), runs[0].logits(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("lts", [None, LTS(start=0.3, until=9)], ids=["all", "lts"])
def test_training_goes_on_in_the_middle_of_an_epoch_to_the_same_weights(lts: LTS | None) -> None:
    graph = planted(**TINY)
    whole, broken, resumed = (trainer(graph=graph, lts=lts, batch_size=4) for _ in range(3))
    whole.run()
    states, taken = [], 0

    def keep() -> None:
        nonlocal taken
        taken += 1
        if taken == 5:
            tensors, numbers = broken.state()
            states.append(({k: v.clone() for k, v in tensors.items()}, numbers))

    broken.on_step = keep
    broken.run()
    resumed.load_state(*states[0])
    assert resumed.progress.step > 0
    resumed.run()
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(resumed)[name])
        assert torch.equal(value, weights(broken)[name])


def test_lts_takes_the_easiest_of_each_batch() -> None:
    run = trainer(lts=LTS(start=0.3, until=9), epochs=1)
    seen: list[torch.Tensor] = []
    losses, descend, means = run._losses, run._descend, []
    run._losses = lambda *batch: seen.append(losses(*batch)) or seen[-1]
    run._descend = lambda loss, epoch: means.append(float(loss.detach())) or descend(loss, epoch)
    share = run.step().share
    assert 0.3 < share < 1
    for each, mean in zip(seen, means, strict=True):
        few = each.sort().values[: -int(-share * len(each) // 1)]
        assert mean == pytest.approx(float(few.mean().detach()))


def test_a_prediction_does_not_depend_on_its_batch() -> None:
    run = trainer("han")
    run.step()
    graph, alone = run.graph, run.logits(torch.tensor([4]))
    torch.testing.assert_close(run.logits(torch.arange(30))[4:5], alone)
    mean = run.model.fusion.mean.clone()
    run.model.train(True)(Batch.of(graph, torch.arange(9)))
    update_running_means(run.model, 0.5)
    last = run.model.fusion._last
    torch.testing.assert_close(run.model.fusion.mean, (mean + last) / 2)


def test_a_model_that_needs_the_whole_graph_says_so() -> None:
    values = {
        "data": {"name": "planted", "options": TINY},
        "model": {"name": "sehgnn", "options": {"hidden_channels": 8}},
        "training": {"recipe": "paper", "batch_size": 8},
    }
    with pytest.raises(HanmeError, match="SeHGNN normalises over all nodes"):
        prepare(RunConfig.make(values), planted(**TINY))


def test_progress_grows_within_epochs_and_does_not_end_before_the_scores() -> None:
    done: list[float | None] = []
    with listening(lambda stage: done.append(stage.done)):
        trainer(epochs=2).run()
    shares = [share for share in done if share is not None]
    assert shares == [0, 0, 0.25, 0.5, 0.5, 0.75]  # two batches per epoch

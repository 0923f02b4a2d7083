"""Models that attend to some instances per root: exact where all are drawn, a draw where not."""

from pathlib import Path

import pytest
import torch

from graphs import KINDS, random_arguments, random_chain
from hanme.data import planted
from hanme.data.store.open import open_store
from hanme.data.store.write import write_store
from hanme.errors import HanmeError
from hanme.explain import Explainer
from hanme.graph.chain import Instances
from hanme.nn import MODELS
from hanme.nn.fusions import SemanticAttention
from hanme.ops import BACKENDS, Problem, metapath_attention
from hanme.ops.eager import encode
from hanme.training import Trainer, TrainingConfig, build_seeded
from hanme.training.batches import logits_of

PATHS = ["movie-actor-movie", "movie-director-movie"]
WAYS = [("hanme", "multihop"), ("hanme", "direct"), ("han", None), ("magnn", "linear")]


def model_of(graph, name: str = "hanme", encoder: str | None = None, per_root: int | None = None):
    options = {"encoder": encoder} if encoder else {}
    torch.manual_seed(3)
    return MODELS[name](
        graph.metadata(),
        graph.target,
        PATHS,
        len(graph.labels),
        in_channels=graph.widths,
        hidden_channels=8,
        heads=2,
        per_root=per_root,
        **options,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_to_some_instances_is_a_softmax_over_them(kind: str, backend: str) -> None:
    chain = random_chain(3, seed=4, density=0.6)
    *given, leaves = random_arguments(chain, kind)
    listed = chain.instances()
    picked = torch.arange(0, len(listed), 3)
    some = Instances(listed.nodes[picked], listed.links[picked], listed.number[picked])
    roots = torch.tensor([1, 0, 1])
    every = torch.arange(chain.sizes[0])
    problem = Problem(chain, tuple(given[0]), *given[1:], every, 0.2, 0.0, 0)
    vector, score = encode(problem, some)
    want = torch.zeros(len(every), *vector.shape[1:], dtype=vector.dtype)
    for root in every:
        mine = some.nodes[:, 0] == root
        weight = torch.softmax(score[mine], 0)[..., None]
        want[root] = (weight * vector[mine]).sum(0)
    got = metapath_attention(chain, *given, roots=roots, instances=some, backend=backend)
    torch.testing.assert_close(got, want[roots])
    loss = torch.randn(got.shape, generator=torch.Generator().manual_seed(1), dtype=got.dtype)
    found = [
        torch.autograd.grad((z * loss).sum(), leaves, retain_graph=True, allow_unused=True)
        for z in (got, want[roots])
    ]
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("name", "encoder"), WAYS)
def test_with_all_instances_drawn_logits_are_exact(
    name: str, encoder: str | None, tmp_path: Path
) -> None:
    graph = planted(movies=60).with_features("given")
    write_store(graph, tmp_path / "store", features="given")
    exact, drawn = model_of(graph, name, encoder), model_of(graph, name, encoder, per_root=10**4)
    some = model_of(graph, name, encoder, per_root=2)
    for model in (exact, drawn, some):
        for part in model.modules():
            if isinstance(part, SemanticAttention):  # as if training had seen batches
                part.mean = torch.zeros(part.vectors)
    want = logits_of(exact, graph)
    for one in (graph, open_store(tmp_path / "store")):
        torch.testing.assert_close(logits_of(drawn, one, batch_size=7), want)
    found = logits_of(some, graph)
    stored = logits_of(some, open_store(tmp_path / "store"), batch_size=9)
    torch.testing.assert_close(stored, found)
    assert not torch.allclose(found, want, atol=1e-3)


def trainer(graph, **config) -> Trainer:
    settings = TrainingConfig(
        **{"recipe": "paper", "epochs": 3, "lr": 0.01, "batch_size": 16, **config}
    )
    model, random = build_seeded(lambda: model_of(graph, per_root=2), graph, settings.seed)
    return Trainer(model, graph, settings, random=random)


def test_instances_are_drawn_anew_each_epoch_and_the_same_after_an_interruption() -> None:
    graph = planted(movies=60).with_features("given")
    whole, broken, resumed = (trainer(graph) for _ in range(3))
    states, seen = [], []

    def keep() -> None:
        if (broken.progress.trained, broken.progress.step) == (1, 1):
            states.append(({k: v.clone() for k, v in broken.state()[0].items()}, broken.state()[1]))

    losses = whole._losses
    whole._losses = lambda batch, nodes: seen.append((nodes, batch)) or losses(batch, nodes)
    broken.on_step = keep
    whole.run()
    broken.run()
    resumed.load_state(*states[0])
    resumed.run()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])
    by_epoch = {}
    for epoch in range(3):
        for nodes, batch in seen[epoch * len(seen) // 3 : (epoch + 1) * len(seen) // 3]:
            numbers = batch.original_ids
            for walk, found in batch.sampled_instances.items():
                types = (walk[0][0], *(step[2] for step in walk))
                lifted = zip(types, found.t(), strict=True)
                rows = torch.stack([numbers[t][column] for t, column in lifted], 1)
                for row in rows.tolist():
                    assert row[0] in nodes
                    by_epoch.setdefault((epoch, walk), set()).add(tuple(row))
    for walk in {walk for _, walk in by_epoch}:
        assert by_epoch[0, walk] != by_epoch[1, walk]


def test_a_prediction_and_its_explanation_draw_the_same_instances() -> None:
    graph = planted(movies=60).with_features("given")
    run = trainer(graph)
    run.run()
    logits = run.logits()
    explainer = Explainer(run.model, graph)
    with pytest.raises(HanmeError, match="node by node"):
        _ = explainer.open
    for node in (3, 41):
        torch.testing.assert_close(run.logits(torch.tensor([node]))[0], logits[node])
        found = explainer.explain(node, instances=50)
        assert list(found.logits.values()) == pytest.approx(logits[node].tolist(), abs=1e-4)
        assert max(found.details.counts.values()) <= 2
        for instance in found.details.instances:
            assert instance.numbers[0] == node
            assert len(instance.numbers) == 3


def test_it_needs_batches_and_at_least_one_instance() -> None:
    graph = planted(movies=60).with_features("given")
    with pytest.raises(HanmeError, match="give a --batch-size"):
        trainer(graph, batch_size=None)
    with pytest.raises(HanmeError, match="at least 1"):
        model_of(graph, per_root=0)

"""Abstract test cases: a package inherits one per component, and pytest runs its tests."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from hanme.common.registry import Registry
from hanme.data import planted
from hanme.decision import RULES, Decision
from hanme.errors import HanmeError
from hanme.estimator import Classifier
from hanme.graph import Graph
from hanme.linear import BLOCKS, FeatureBlock
from hanme.linear.blocks import added_blocks
from hanme.linear.matrices import GraphMatrices
from hanme.nn import CHANNELS, ENCODERS, FUSIONS, HANME, MODELS, Batch, Model
from hanme.nn.fusions import make_fusion
from hanme.ops import BACKENDS
from hanme.runs.build import build_network
from hanme.training import CALLBACKS, Trainer, TrainingConfig, build_seeded
from hanme.training.batches import normalises

SIZES: dict[str, Any] = {"hidden_channels": 8, "heads": 2}
"""Options of the networks that are trained."""


class ComponentCases:
    """Base class: a subclass sets the name of a component, and its options."""

    name: str
    options: dict[str, Any] = {}  # noqa: RUF012  a default, which nothing changes
    registry: ClassVar[Registry[Any]]

    @property
    def table(self) -> dict[str, Any]:
        """Name and options, as in a configuration."""
        return {"name": self.name, **self.options}

    def graph(self) -> Graph:
        """Return a graph of movies, actors, directors and keywords; movies have three genres."""
        return planted(movies=60, genres=3)

    def classifier(self) -> Classifier:
        """Return a classifier, not fitted yet, that uses the component."""
        raise NotImplementedError

    def test_it_is_found_by_its_name(self) -> None:
        """Find the class, which an installed package declares as an entry point."""
        assert isinstance(self.registry.find(self.name), type)

    def test_a_run_predicts_the_same_once_it_is_loaded(self, tmp_path: Path) -> None:
        """Fit, save, load by name, and explain: contributions add up to the logits."""
        graph = self.graph()
        fitted = self.classifier().fit(graph)
        fitted.save(tmp_path / "run")
        loaded = Classifier.load(tmp_path / "run", graph=graph)
        np.testing.assert_allclose(loaded.predict_proba(), fitted.predict_proba(), atol=1e-6)
        np.testing.assert_array_equal(loaded.predict(), fitted.predict())
        try:
            found = loaded.explain(3)
        except HanmeError as error:
            assert "cannot be explained" in str(error)  # noqa: PT017  a model need not be
            return
        for label, logit in found.logits.items():
            total = found.base[label] + sum(r.contributions[label] for r in found.reasons)
            assert abs(total - logit) < 1e-5


class PartCases(ComponentCases):
    """Base class for parts of HAN-ME."""

    def arguments(self) -> dict[str, Any]:
        """Return arguments of :class:`HANME` that use the component."""
        raise NotImplementedError

    def build(self, graph: Graph, **changes: Any) -> HANME:
        """Return a new network."""
        given = SIZES | self.arguments() | changes
        widths = graph.widths
        return HANME(graph.metadata(), "movie", graph.metapaths, 3, in_channels=widths, **given)

    def network(self, graph: Graph, **changes: Any) -> HANME:
        """Return a network with weights."""
        model, _ = build_seeded(lambda: self.build(graph, **changes), graph, seed=1)
        return model.eval()

    def classifier(self) -> Classifier:
        """Return a classifier that trains the network for two epochs."""
        training = {"recipe": "paper", "epochs": 2}
        return Classifier(options=SIZES | self.arguments(), training=training)

    def test_a_root_has_the_same_vectors_in_any_batch(self) -> None:
        """Compute vectors of all roots, of some, and of these on their subgraph."""
        graph, roots = self.graph(), torch.tensor([7, 2, 40])
        model = self.network(graph)
        with torch.no_grad():
            for part in model.parts:
                every, some = part(Batch.of(graph)), part(Batch.of(graph, roots))
                assert len(every) == len(some) == len(part.names)
                near = graph.subgraph(roots, part.walks() or [])
                known = part.walks() is not None
                again = part(Batch.of(near, near.roots)) if known else some
                for z, z_some, z_near in zip(every, some, again, strict=True):
                    torch.testing.assert_close(z_some, z[roots])
                    torch.testing.assert_close(z_near, z[roots])

    def test_the_seed_draws_every_weight(self) -> None:
        """Build the network again with the same seed."""
        graph = self.graph()
        check_seed(lambda: self.build(graph), graph)


class EncoderCases(PartCases):
    """Tests of an encoder."""

    registry = ENCODERS

    def arguments(self) -> dict[str, Any]:
        """Return the encoder and its options."""
        return {"encoder": self.name, **self.options}

    def test_backends_agree(self) -> None:
        """Compute values and gradients by each backend that takes the encoder."""
        graph, results = self.graph(), []
        for backend in BACKENDS:
            try:
                model = self.network(graph, backend=backend)
                logits = model(Batch.of(graph))
            except HanmeError:
                assert backend == "streaming"  # refuses an encoder that is any function
                continue
            logits.square().sum().backward()
            results.append([logits, *(p.grad for p in model.parameters())])
        for other in results[1:]:
            for x, y in zip(results[0], other, strict=True):
                size = max(1.0, y.abs().max().item())
                torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5 * size)


class FusionCases(PartCases):
    """Tests of a fusion."""

    registry = FUSIONS

    def arguments(self) -> dict[str, Any]:
        """Return the fusion."""
        return {"fusion": self.table}

    def test_vectors_become_one(self) -> None:
        """Check the size of the result and, of a weighted sum, its weights."""
        fusion = make_fusion(self.table, 3, 8).eval()
        vectors = list(torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0)))
        with torch.no_grad():
            fused, weights = fusion(vectors), fusion.weights(vectors)
        assert fused.shape == (5, fusion.out_channels)
        if weights is not None:
            expected = torch.einsum("m,mrc->rc", weights, torch.stack(vectors))
            torch.testing.assert_close(fused, expected)


class ChannelCases(PartCases):
    """Tests of channels."""

    registry = CHANNELS

    def arguments(self) -> dict[str, Any]:
        """Return the channels, beside those of the metapaths."""
        return {"channels": [self.table]}

    def test_no_root_reads_its_own_label(self) -> None:
        """Change the label of a root: its vectors stay."""
        graph = self.graph()
        part = self.network(graph).parts[-1]
        assert own_label_is_unread(lambda batch: part(batch), graph)


class ModelCases(ComponentCases):
    """Tests of a model; ``options`` make it small."""

    registry = MODELS

    def classifier(self) -> Classifier:
        """Return a classifier that trains the model for two epochs."""
        return Classifier(
            self.name, options=self.options, training={"recipe": "paper", "epochs": 2}
        )

    def network(self, graph: Graph) -> Model:
        """Return the trained network, without dropout."""
        model: Any = self.classifier().fit(graph).run_.model.network
        return model.eval()  # type: ignore[no-any-return]

    def test_each_root_gets_its_logits(self) -> None:
        """Compute all roots, also in another order, and change a root's own label."""
        graph = self.graph()
        model, order = self.network(graph), torch.randperm(60)
        with torch.no_grad():
            logits = model(Batch.of(graph))
            assert logits.shape == (60, 3)
            torch.testing.assert_close(model(Batch.of(graph, order)), logits[order])
        # Statistics over all nodes depend on the labels of all of them.
        assert normalises(model) or own_label_is_unread(lambda batch: [model(batch)], graph)

    def test_the_seed_draws_every_weight(self) -> None:
        """Build the model again with the same seed."""
        graph = self.graph()
        config = self.classifier().fit(graph).run_.config
        check_seed(lambda: build_network(config.model, graph), graph)


class FeatureBlockCases(ComponentCases):
    """Tests of a feature block of the linear model."""

    registry = BLOCKS

    def blocks(self, graph: Graph) -> list[FeatureBlock]:
        """Return its blocks on a graph."""
        return list(added_blocks(graph, [self.table]))

    def classifier(self) -> Classifier:
        """Return a classifier whose linear model considers the block."""
        return Classifier("linear", training={"blocks": [self.table]})

    def test_contributions_are_rows_times_weights(self) -> None:
        """Divide the logits of a node, on the whole graph and on the part that it reaches."""
        graph, roots = self.graph(), torch.tensor([7, 2])
        for block in self.blocks(graph):
            whole = GraphMatrices(graph)
            design = block.matrix(whole)
            weight = torch.randn(design.width, 3, generator=torch.Generator().manual_seed(0))
            expected = design.times(roots.numpy(), weight)
            part = block.contributions(whole, 7, weight.double().numpy())
            np.testing.assert_allclose(part.values.sum(0), expected[0], rtol=1e-4, atol=1e-5)
            if block.id_type is None:
                near = graph.subgraph(roots, block.walks)
                rows = block.matrix(GraphMatrices(near, whole.idf))
                found = rows.times(near.roots.numpy(), weight)
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


class DecisionRuleCases(ComponentCases):
    """Tests of a decision rule, which has no options."""

    registry = RULES

    def classifier(self) -> Classifier:
        """Return a classifier that decides by the rule."""
        training = {"recipe": "paper", "epochs": 2, "decide": self.name}
        return Classifier(options=SIZES, training=training)

    def test_labels_of_a_node_depend_on_its_logits_alone(self) -> None:
        """Decide for many nodes and for single ones, with one label per node and with several."""
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(200, 3, generator=generator)
        several = (logits + torch.randn(200, 3, generator=generator) > 0).float()
        for y in (several, several.argmax(1)):
            multilabel = y.dim() == 2
            decision = Decision.fit(self.name, logits, y)
            decision = Decision.model_validate_json(decision.model_dump_json())
            labels = decision.labels(logits, multilabel=multilabel)
            assert (labels.dtype, labels.shape) == (torch.bool, logits.shape)
            assert multilabel or bool((labels.sum(1) == 1).all())
            alone = [decision.labels(row, multilabel=multilabel) for row in torch.split(logits, 1)]
            assert torch.equal(torch.cat(alone), labels)


class CallbackCases(ComponentCases):
    """Tests of a callback."""

    registry = CALLBACKS

    def classifier(self) -> Classifier:
        """Return a classifier that calls the callback."""
        training = {"recipe": "paper", "epochs": 2, "callbacks": [self.table]}
        return Classifier(options=SIZES, training=training)

    def trainer(self, **config: Any) -> Trainer:
        """Return a trainer of a small network with the callback."""
        values = {"epochs": 6, "callbacks": [self.table], **config}
        training, graph = TrainingConfig.model_validate(values), self.graph()
        model, random = build_seeded(
            lambda: HANME(graph.metadata(), "movie", graph.metapaths, 3, **SIZES),
            graph,
            training.seed,
        )
        return Trainer(model, graph, training, random=random)

    def test_weights_are_the_same_after_a_resume(self) -> None:
        """Train in one go, and from a checkpoint; on the whole graph and in batches."""
        self._resume(self.trainer(), self.trainer(), self.trainer())
        self._resume(*(self.trainer(batch_size=16) for _ in range(3)))

    def _resume(self, whole: Trainer, broken: Trainer, resumed: Trainer) -> None:
        states = [deepcopy(broken.state())]

        def keep(*_: object) -> None:
            states.append(deepcopy(broken.state()))

        broken.on_step = keep
        broken.run(keep)
        resumed.load_state(*states[len(states) // 2])
        whole.run()
        resumed.run()
        assert resumed.progress == whole.progress
        for name, weight in whole.model.state_dict().items():
            assert torch.isfinite(weight).all()
            assert torch.equal(resumed.model.state_dict()[name], weight)


CASES = (
    CallbackCases,
    ChannelCases,
    DecisionRuleCases,
    EncoderCases,
    FeatureBlockCases,
    FusionCases,
    ModelCases,
)
"""The test cases, one per kind of component."""


def check_seed(build: Callable[[], Model], graph: Graph) -> None:
    """Check that a seed gives every weight, and leaves PyTorch's generator as it was."""
    before = torch.get_rng_state()
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills memory without values by NaN
    try:
        models = [build_seeded(build, graph, seed)[0] for seed in (1, 2, 1)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(torch.get_rng_state(), before)
    first, other, again = (dict(model.named_parameters()) for model in models)
    assert [name for name, weight in first.items() if not weight.isfinite().all()] == []
    assert [name for name, weight in first.items() if not torch.equal(weight, again[name])] == []
    assert not first or any(not torch.equal(weight, other[name]) for name, weight in first.items())


def own_label_is_unread(function: Any, graph: Graph) -> bool:
    """Return whether what is computed for a root stays the same if its label changes."""
    batch, root = Batch.of(graph), int(graph.split.train.nonzero()[0])
    assert batch.labels is not None
    labels = batch.labels.clone()
    labels[root] = 1 - labels[root]
    other = Batch(batch.x_dict, batch.edge_index_dict, labels=labels)
    with torch.no_grad():
        pairs: list[tuple[Tensor, Tensor]] = list(
            zip(function(batch), function(other), strict=True)
        )
    return all(torch.allclose(x[root], y[root], atol=1e-6) for x, y in pairs)

"""Every component passes the abstract test cases that third parties inherit from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from hanme import testing
from hanme.common.registry import Registry
from hanme.graph import Graph
from hanme.linear import BLOCKS, FeatureBlock, NamedColumns, parse_block
from hanme.linear.aggregates import Column
from hanme.linear.blocks import Standardised
from hanme.nn import ENCODERS
from hanme.testing import (
    CASES,
    ChannelCases,
    ComponentCases,
    DecisionRuleCases,
    EncoderCases,
    FeatureBlockCases,
    FusionCases,
    ModelCases,
)
from nn.test_paths import Recurrent

SMALL = {"hidden_channels": 8, "heads": 2}


class TestMultihop(EncoderCases):
    name = "multihop"


class TestMultihopSoftmax(EncoderCases):
    name, options = "multihop", {"gate": "softmax", "learn_gamma": True}


class TestDirect(EncoderCases):
    name = "direct"


class TestMean(EncoderCases):
    name = "mean"


class TestLinear(EncoderCases):
    name = "linear"


class TestRotate(EncoderCases):
    name = "rotate"


class TestEnd(EncoderCases):
    name = "end"


class TestRecurrent(EncoderCases):
    """An encoder that is any function of the path."""

    name = "recurrent"

    @pytest.fixture(autouse=True)
    def _listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(ENCODERS, "recurrent", Recurrent)


class TestSemantic(FusionCases):
    name = "semantic"


class TestConcat(FusionCases):
    name = "concat"


class TestTransformer(FusionCases):
    name, options = "transformer", {"heads": 2}


class TestMetapathChannels(ChannelCases):
    name, options = "metapaths", {"metapaths": ["movie-keyword-movie"]}


class TestFeatureChannels(ChannelCases):
    name = "features"


class TestLabelChannels(ChannelCases):
    name = "labels"


class TestHANME(ModelCases):
    name, options = "hanme", SMALL


class TestHAN(ModelCases):
    name, options = "han", SMALL


class TestMAGNN(ModelCases):
    name, options = "magnn", SMALL


class TestGAT(ModelCases):
    name, options = "gat", SMALL


class TestMAGNA(ModelCases):
    name, options = "magna", SMALL


class TestSeHGNN(ModelCases):
    name: str = "sehgnn"
    options: ClassVar = {"hidden_channels": 8}


class BuiltinBlockCases(FeatureBlockCases):
    """The linear model considers these by itself."""

    texts: tuple[str, ...]

    def blocks(self, graph: Graph) -> list[FeatureBlock]:
        return [parse_block(text, graph.metadata()) for text in self.texts]

    def classifier(self) -> Any:
        return testing.Classifier("linear")


class TestFeatures(BuiltinBlockCases):
    name = "features"
    texts = ("features:plain", "features:unit", "movie-actor-movie:features:unit")


class TestIds(BuiltinBlockCases):
    name, texts = "ids", ("movie-actor:ids:plain", "movie-director-movie-actor:ids:unit")


class TestAggregates(BuiltinBlockCases):
    name = "aggregates"

    def blocks(self, graph: Graph) -> list[FeatureBlock]:
        walk = (("movie", "to", "actor"),)
        column = Column(walk=walk, function="count", phrase="number of actors")
        fitted = Standardised.fit(graph, [column])
        return [parse_block("aggregates:plain", graph.metadata(), fitted)]


@dataclass(frozen=True)
class Degrees(NamedColumns):
    """The number of links of each node, by relation."""

    log: bool = False

    kind: ClassVar[str] = "degrees"

    @property
    def walks(self) -> list[Any]:
        return [(("movie", "to", "actor"),), (("movie", "to", "keyword"),)]

    def columns(self, graph: Graph) -> tuple[NDArray[Any], list[str]]:
        size = graph.targets.num_nodes
        counts = [np.bincount(graph.links[e][0], minlength=size) for (e,) in self.walks]
        found = np.stack(counts, 1).astype(float)
        return np.log1p(found) if self.log else found, ["number of actors", "number of keywords"]


class TestDegrees(FeatureBlockCases):
    """A block of another package."""

    name, options = "degrees", {"log": True}

    @pytest.fixture(autouse=True)
    def _listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(BLOCKS, "degrees", Degrees)


class TestMicro(DecisionRuleCases):
    name = "micro"


class TestMacro(DecisionRuleCases):
    name = "macro"


class TestHalf(DecisionRuleCases):
    name = "half"


class TestFallback(DecisionRuleCases):
    name = "fallback"


def subclasses(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield from (one, *subclasses(one))


@pytest.mark.parametrize("cases", CASES, ids=lambda cases: cases.__name__)
def test_every_component_of_hanme_has_cases(cases: type[ComponentCases]) -> None:
    from training import test_callbacks  # noqa: F401  those of callbacks

    registry: Registry[Any] = cases.registry
    assert registry.builtin
    tested = {one.name for one in subclasses(cases) if hasattr(one, "name")}
    assert registry.builtin.keys() <= tested


def test_every_registry_has_cases() -> None:
    from hanme.decision import RULES
    from hanme.nn import CHANNELS, FUSIONS, MODELS
    from hanme.training import CALLBACKS

    every = [BLOCKS, CALLBACKS, CHANNELS, ENCODERS, FUSIONS, MODELS, RULES]
    assert {one.group for one in every} == {one.registry.group for one in CASES}

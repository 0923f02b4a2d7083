"""Feature blocks against a loop over metapath instances."""

import json
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch_geometric.data import HeteroData

from hanme.data import planted
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.chain import Chain
from hanme.linear import (
    BLOCKS,
    FeatureBlock,
    LinearModel,
    NamedColumns,
    matrices,
    parse_block,
)
from hanme.linear.aggregates import Column
from hanme.linear.blocks import AggregatedRows, Standardised
from hanme.linear.fit import inner_products
from hanme.linear.matrices import DesignMatrix, GraphMatrices, TooLarge, multiply


def graph() -> Graph:
    """A small planted graph with features in every type and one repeated link."""
    made = planted(movies=40, seed=2).with_features("given-onehot")
    links = dict(made.links)
    first = next(iter(links))
    links[first] = torch.cat([links[first], links[first][:, :1]], 1)
    return replace(made, links=links)


def matrix(text: str, made: Graph) -> DesignMatrix:
    return parse_block(text, made.metadata()).matrix(GraphMatrices(made))


def expected_rows(block: FeatureBlock, made: Graph) -> np.ndarray:
    """Sum or average the columns at the end of each instance, the node's own left out."""
    assert block.path is not None
    end, is_ids = block.path.node_types[-1], block.kind == "ids"
    x = made.x_dict[end].to_dense().double().numpy()
    if block.scaling == "unit":
        x = x * (np.log((1 + len(x)) / (1 + (x != 0).sum(0))) + 1)
        x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    if is_ids:
        x = np.eye(made.sizes[end])
    chain = Chain.build(block.path, made.links, made.sizes)
    rows = np.zeros((made.targets.num_nodes, x.shape[1]))
    for node in range(len(rows)):
        ends = [
            int(nodes[-1])
            for some in chain.blocks(node, 1 << 20)
            for nodes in some.nodes
            if is_ids or end != made.target or int(nodes[-1]) != node
        ]
        if ends:
            rows[node] = x[ends].sum(0) if is_ids else x[ends].mean(0)
    if block.scaling == "unit":
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows


@pytest.mark.parametrize("scaling", ["plain", "unit"])
@pytest.mark.parametrize(
    "text",
    [
        "movie-actor:ids",
        "movie-actor:features",
        "movie-actor-movie:features",
        "movie-director-movie-actor:ids",
        "movie-director-movie-actor-movie:features",
    ],
)
def test_rows_are_sums_over_instances_without_the_node_itself(text: str, scaling: str) -> None:
    made = graph()
    block = parse_block(f"{text}:{scaling}", made.metadata())
    assert str(block) == f"{text}:{scaling}"
    nodes = np.array([7, 0, 39, 7])
    design, expected = block.matrix(GraphMatrices(made)), expected_rows(block, made)[nodes]
    np.testing.assert_allclose(design.rows(nodes).toarray(), expected, atol=1e-5)
    weight = torch.randn(design.width, 3, generator=torch.Generator().manual_seed(1))
    times = design.times(nodes, weight)
    np.testing.assert_allclose(times, expected @ weight.double().numpy(), atol=1e-4)
    products = inner_products(design.rows(nodes))
    np.testing.assert_allclose(products, expected @ expected.T, atol=1e-4)


def test_few_entries_are_computed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = graph()
    design, nodes = matrix("movie-actor-movie:features:plain", made), np.arange(40)
    weight = torch.rand(design.width, 2, generator=torch.Generator().manual_seed(2))
    whole = design.times(nodes, weight)
    monkeypatch.setattr("hanme.linear.matrices.CHUNK", 1)
    assert len(list(design.chunks(nodes))) == 40
    torch.testing.assert_close(design.times(nodes, weight), whole)


@pytest.mark.parametrize("scaling", ["plain", "unit"])
def test_a_node_that_reaches_itself_alone_has_no_row(scaling: str) -> None:
    made = graph()
    text = f"movie-actor-movie-actor-movie:features:{scaling}"
    path = parse_block(text, made.metadata()).path
    alone = torch.stack([torch.zeros(7, dtype=torch.long), torch.arange(7)])
    there, back = path.steps[:2]
    made = replace(made, links=made.links | {there: alone, back: alone.flip(0)})
    x = torch.rand(40, 50, generator=torch.Generator().manual_seed(1))
    made = replace(made, nodes=made.nodes | {"movie": replace(made.targets, x=x)})
    assert not matrix(text, made).rows(np.array([0, 5])).toarray().any()  # node 5 has no links


def test_rounding_errors_become_no_rows_of_length_1() -> None:
    data = HeteroData()
    x = np.random.default_rng(0).integers(0, 4, (10, 30)).astype(np.float32)
    data["node"].x = torch.from_numpy(np.concatenate([x, 0 * x]))
    data["node"].y = torch.arange(20) % 2
    data["tag"].num_nodes = 70
    tags = torch.arange(70)
    links = torch.stack([torch.cat([tags % 10, tags % 10 + 10]), tags.repeat(2)])
    data["node", "has", "tag"].edge_index = links
    data["tag", "of", "node"].edge_index = links.flip(0)
    design = matrix("node-tag-node:features:unit", Graph.from_hetero(data))
    assert design.rows(np.arange(10)).nnz == 0
    assert design.rows(np.arange(10, 20)).nnz == len(x.nonzero()[0])


def test_own_features_never_come_back() -> None:
    made, text = graph(), "movie-actor-movie:features:plain"
    x = made.x_dict["movie"].to_dense()
    x[5] = 100.0
    nodes = made.nodes | {"movie": replace(made.targets, x=x.to_sparse_csr())}
    before, after = (
        matrix(text, each).rows(np.array([5])) for each in (made, replace(made, nodes=nodes))
    )
    np.testing.assert_allclose(before.toarray(), after.toarray(), atol=1e-4)


@pytest.mark.parametrize(
    "text", ["movie-actor", "movie-actor:names:unit", "features", "a-b:ids:unit", "ids:unit"]
)
def test_an_unknown_block_is_refused(text: str) -> None:
    with pytest.raises(HanmeError):
        parse_block(text, graph().metadata())


@pytest.mark.parametrize(
    "text",
    [
        "features:plain", "features:unit", "movie-actor:ids:plain", "movie-actor-movie:ids:unit",
        "movie-actor:features:unit", "movie-actor-movie:features:plain",
        "movie-actor-movie:features:unit", "movie-actor-movie-actor-movie:features:unit",
    ],
)  # fmt: skip
def test_contributions_of_neighbours_add_up_to_the_row(text: str) -> None:
    made = graph()
    matrices, block = GraphMatrices(made), parse_block(text, made.metadata())
    design = block.on(matrices)
    weight = np.random.default_rng(0).normal(size=(design.width, 3))
    for node in (0, 5):
        part = block.contributions(matrices, node, weight)
        row = design.rows(np.array([node])).toarray().astype(np.float64)
        np.testing.assert_allclose(part.values.sum(0), (row @ weight)[0], atol=1e-5)
        if block.path:
            cast = made.links["movie", "to", "actor"]
            assert part.node_type == "actor"
            assert set(part.numbers) == set(cast[1, cast[0] == node].tolist())


def test_products_are_in_the_cheapest_order_that_is_not_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    sizes = [50, 300, 50, 300, 50, 7]
    dense = [(random.random((a, b)) < 0.03).astype(np.float32) for a, b in pairwise(sizes)]
    chain = [csr_array(each) for each in dense]
    for limit in (2**26, 3000):
        monkeypatch.setattr(matrices, "MAX_ENTRIES", limit)
        (product,) = multiply(chain, 1)
        np.testing.assert_allclose(product.toarray(), reduce(np.matmul, dense), rtol=1e-5)
    left, right = multiply(chain[:4], 2)
    np.testing.assert_allclose((left @ right).toarray(), reduce(np.matmul, dense[:4]), rtol=1e-5)
    monkeypatch.setattr(matrices, "MAX_ENTRIES", 100)
    with pytest.raises(TooLarge):
        multiply(chain, 1)


@dataclass(frozen=True)
class Degrees(NamedColumns):
    """The number of actors of each movie; one of the options is a text like a block."""

    log: bool = True
    unit: str = "a:{b}:plain"

    kind: ClassVar[str] = "degrees"

    def columns(self, graph: Graph) -> tuple[np.ndarray, list[str]]:
        links = graph.links["movie", "to", "actor"]
        counts = np.bincount(links[0], minlength=graph.targets.num_nodes)[:, None].astype(float)
        return np.log1p(counts) if self.log else counts, ["number of actors"]


@pytest.fixture
def degrees(monkeypatch: pytest.MonkeyPatch) -> list[Degrees]:
    monkeypatch.setitem(BLOCKS, "degrees", Degrees)
    return [Degrees(None, "plain", log=log) for log in (True, False)]


def test_blocks_that_differ_in_their_options_have_columns_of_their_own(
    degrees: list[Degrees],
) -> None:
    made = graph()
    shared, nodes = GraphMatrices(made), np.arange(40)
    for block in degrees:
        expected, _ = block.columns(made)
        np.testing.assert_allclose(block.on(shared).rows(nodes).toarray(), expected, rtol=1e-6)
    assert all(parse_block(str(block), made.metadata()) == block for block in degrees)


def test_blocks_that_differ_in_their_options_are_saved_apart(degrees: list[Degrees]) -> None:
    made = graph()
    weights = torch.randn(3, len(made.labels), generator=torch.Generator().manual_seed(0))
    model = LinearModel.on(GraphMatrices(made), degrees, weights)
    doubled = LinearModel.weighted_sum([model, model], [1.5, 0.5])
    values, tensors = doubled.state()
    loaded = LinearModel.from_state(json.loads(json.dumps(values)), tensors, made)
    columns = np.hstack([block.columns(made)[0] for block in degrees])
    expected = 2 * (columns @ weights[:2].numpy() + weights[2].numpy())
    for each in (doubled, loaded):
        np.testing.assert_allclose(each.predict(made), expected, rtol=1e-4)


def test_options_are_found_where_0_3_0_saved_them(degrees: list[Degrees]) -> None:
    options = {"degrees": {"log": False}}
    block = parse_block("degrees:plain", graph().metadata(), options=options)
    assert block == degrees[1]


def test_aggregates_of_different_columns_do_not_share_a_matrix() -> None:
    made = graph()
    shared = GraphMatrices(made)
    walks = [(("movie", "to", kind),) for kind in ("actor", "keyword")]
    columns = [Column(walk=walk, function="count", phrase="number") for walk in walks]
    blocks = [AggregatedRows(Standardised.fit(made, [column])) for column in columns]
    first, second = (block.on(shared).rows(np.arange(40)).toarray() for block in blocks)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(blocks[0].on(shared).rows(np.arange(40)).toarray(), first)

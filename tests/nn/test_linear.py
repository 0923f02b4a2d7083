"""Blocks of rows against a loop over instances, and the model linear."""

import tracemalloc
from dataclasses import replace
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.preprocessing import PolynomialFeatures

from hanme.data import planted
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.chain import Chain
from hanme.nn import Linear
from hanme.nn.batch import Batch
from hanme.nn.channels import Task, WideChannels, blocks
from hanme.nn.channels.blocks import Block, Rows, TooLarge, pair
from hanme.training import choose_wide, fit_wide
from hanme.training.fit import fill_wide
from hanme.training.wide import candidates

PAIRS = PolynomialFeatures((2, 2), interaction_only=True, include_bias=False)


def graph() -> Graph:
    """A small planted graph with features in every type, one link of which is there twice."""
    made = planted(movies=40, seed=2).with_features("given-onehot")
    links = dict(made.links)
    first = next(iter(links))
    links[first] = torch.cat([links[first], links[first][:, :1]], 1)
    return replace(made, links=links)


def rows(block: Block, made: Graph) -> Rows:
    given = (made.x_dict, made.edge_index_dict, made.sizes)
    return Rows(block, made.target, *given, labels=made.training_labels)


def by_hand(block: Block, made: Graph) -> np.ndarray:
    """Add up what lies at the end of each instance, the root's own left out."""
    assert block.path is not None
    end = block.path.node_types[-1]
    x = made.x_dict[end].to_dense().double().numpy()
    if block.scaling == "unit":
        rarity = np.log((1 + len(x)) / (1 + (x != 0).sum(0))) + 1
        x = x * rarity
        x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    if block.read == "ids":
        x = np.eye(made.sizes[end])
    chain = Chain.build(block.path, made.links, made.sizes)
    found = np.zeros((made.targets.num_nodes, x.shape[1]))
    for root in range(len(found)):
        ends = [
            int(nodes[-1])
            for some in chain.blocks(root, 1 << 20)
            for nodes in some.nodes
            if block.read == "ids" or end != made.target or int(nodes[-1]) != root
        ]
        if ends:
            found[root] = x[ends].sum(0) if block.read == "ids" else x[ends].mean(0)
    if block.scaling == "unit":
        found = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    return found


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
def test_rows_are_sums_over_instances_without_the_root(text: str, scaling: str) -> None:
    made = graph()
    block = Block.parse(f"{text}:{scaling}", made.metadata())
    assert str(block) == f"{text}:{scaling}"
    roots = np.array([7, 0, 39, 7])
    found = rows(block, made)
    expected = by_hand(block, made)
    np.testing.assert_allclose(found(roots).toarray(), expected[roots], atol=1e-5)
    for root in roots:
        columns, values = found.row(root)
        np.testing.assert_allclose(values, expected[root][columns], atol=1e-5)
        assert not np.delete(expected[root], columns).any()
    parts = found.chunks(np.arange(40))
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(40))


def test_pairs_are_the_products_of_each_two_features(monkeypatch: pytest.MonkeyPatch) -> None:
    made = graph()
    x = torch.randn(40, 9, generator=torch.Generator().manual_seed(1)) * (torch.rand(40, 9) < 0.6)
    x[3], x[4, 2] = 0, 50
    made = replace(made, nodes=made.nodes | {"movie": replace(made.targets, x=x)})
    found = rows(Block.parse("pairs:plain", made.metadata()), made)
    cut = x.numpy().clip(-3, 3)
    order = [sorted(np.flatnonzero(powers)) for powers in PAIRS.fit(cut).powers_]
    columns = [order.index(list(pair(column))) for column in range(found.width)]
    assert sorted(columns) == list(range(len(order)))
    expected = PAIRS.fit_transform(cut)[:, columns]
    roots = np.array([7, 3, 4, 39, 7])
    np.testing.assert_allclose(found(roots).toarray(), expected[roots], atol=1e-5)
    np.testing.assert_allclose(
        found.products(roots), (expected @ expected.T)[roots][:, roots], atol=1e-4
    )
    places, values = found.row(4)
    np.testing.assert_allclose(values, expected[4][places], atol=1e-5)
    assert found.numbers() == (expected != 0).sum()
    monkeypatch.setattr(blocks, "CHUNK", 50)  # two roots at a time
    given = torch.randn(5, 3, generator=torch.Generator().manual_seed(2)).double()
    np.testing.assert_allclose(
        found.transposed_times(roots, given), expected[roots].T @ given.numpy(), atol=1e-4
    )


def test_rows_are_never_held_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, x = graph(), torch.rand(40, 200, generator=torch.Generator().manual_seed(1))
    made = replace(made, nodes=made.nodes | {"movie": replace(made.targets, x=x)})
    found = rows(Block.parse("pairs:plain", made.metadata()), made)
    weight = torch.rand(found.width, 2, generator=torch.Generator().manual_seed(2))
    whole = found.times(np.arange(40), weight)
    monkeypatch.setattr(blocks, "CHUNK", found.width)  # one root at a time
    tracemalloc.start()
    by_root = found.times(np.arange(40), weight)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    torch.testing.assert_close(by_root, whole)
    assert most < 12 * found.numbers() / 2


def test_rows_of_one_feature_have_no_pairs() -> None:
    made = graph()
    x = torch.eye(8).repeat(5, 1) * torch.rand(40, 1, generator=torch.Generator().manual_seed(1))
    for one in (x, x.sum(1, keepdim=True)):
        made = replace(made, nodes=made.nodes | {"movie": replace(made.targets, x=one)})
        found = rows(Block.parse("pairs:plain", made.metadata()), made)
        assert not found.products(np.arange(40)).any()
        assert found(np.arange(40)).nnz == found.numbers() == 0


@pytest.mark.parametrize("read", ["features", "beliefs"])
@pytest.mark.parametrize("scaling", ["plain", "unit"])
def test_a_root_that_meets_itself_alone_has_no_row(read: str, scaling: str) -> None:
    made = graph()
    block = Block.parse(f"movie-actor-movie-actor-movie:{read}:{scaling}", made.metadata())
    assert block.path is not None
    alone = torch.stack([torch.zeros(7, dtype=torch.long), torch.arange(7)])
    there, back = block.path.steps[:2]
    made = replace(made, links=made.links | {there: alone, back: alone.flip(0)})
    x = torch.rand(40, 50, generator=torch.Generator().manual_seed(1))
    made = replace(made, nodes=made.nodes | {"movie": replace(made.targets, x=x)})
    found = rows(block, made)
    found = found.reading(x) if read == "beliefs" else found
    assert not found(np.array([0, 5])).toarray().any()  # node 5 has no links at all
    assert not found.row(0)[1].any()
    assert not found.row(5)[1].any()


@pytest.mark.parametrize("text", ["movie-actor-movie", "movie-director-movie-actor-movie"])
def test_rows_of_labels_are_means_over_the_labels_of_other_parts(text: str) -> None:
    made = graph()
    block = Block.parse(f"{text}:labels:plain", made.metadata())
    found, part = rows(block, made), rows(block, made).part
    assert part is not None
    np.testing.assert_array_equal(part >= 0, made.split.train.numpy())
    chain = Chain.build(block.path, made.links, made.sizes)
    y = made.training_labels.numpy()
    for root in range(40):
        ends = [int(n[-1]) for some in chain.blocks(root, 1 << 20) for n in some.nodes]
        ends = [e for e in ends if part[e] >= 0 and part[e] != part[root]]
        wanted = y[ends].sum(0) / (len(ends) + 1)
        np.testing.assert_allclose(found(np.array([root])).toarray()[0], wanted, atol=1e-6)


def test_a_node_s_label_changes_no_row_that_could_lead_back_to_it() -> None:
    made = graph()
    block = Block.parse("movie-actor-movie:labels:unit", made.metadata())
    node = int(made.split.train.nonzero()[0])
    changed = replace(made, y=made.y.clone())
    changed.y[node] = 1 - changed.y[node]
    assert changed.y[node].any()
    before, after = rows(block, made), rows(block, changed)
    same = before.part == before.part[node]
    for root in np.flatnonzero(same):
        np.testing.assert_array_equal(
            before(np.array([root])).toarray(), after(np.array([root])).toarray()
        )


def test_labels_are_read_only_when_asked_for() -> None:
    made = graph()
    assert not any("labels" in text for text in choose_wide(made, 1).blocks)
    blocks = [str(block) for block in candidates(made, labels=True)]
    assert "movie-actor-movie:labels:plain" in blocks
    assert not any(block.startswith("movie-actor:labels") for block in blocks)


def test_a_node_s_own_features_never_come_back_to_it() -> None:
    made = graph()
    block = Block.parse("movie-actor-movie:features:plain", made.metadata())
    x = made.x_dict["movie"].to_dense()
    x[5] = 100.0
    changed = replace(
        made, nodes=made.nodes | {"movie": replace(made.targets, x=x.to_sparse_csr())}
    )
    before, after = rows(block, made)(np.array([5])), rows(block, changed)(np.array([5]))
    np.testing.assert_allclose(before.toarray(), after.toarray(), atol=1e-4)


@pytest.mark.parametrize(
    "text", ["movie-actor", "movie-actor:names:unit", "features", "a-b:ids:unit"]
)
def test_a_block_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(HanmeError):
        Block.parse(text, graph().metadata())


def fitted() -> tuple[Graph, Linear]:
    made = planted(movies=200, guests=0, noise=0, genres=3, seed=1).with_features("given")
    wide = choose_wide(made, seed=1)
    model = Linear(made.metadata(), "movie", 3, blocks=wide.blocks)
    (part,) = model.parts
    fill_wide(part, made, fit_wide(part, made, wide, [made.split.train]).mean((0, 1)))
    return made, model


def test_it_learns_and_gives_the_same_for_some_roots_and_after_loading() -> None:
    made, model = fitted()
    every = model(Batch.of(made))
    test = made.split.test
    hits = ((every > 0) == made.label_matrix)[test].float().mean()
    assert hits > 0.85
    roots = torch.tensor([3, 199, 3])
    some = model(Batch.of(made, roots))
    torch.testing.assert_close(some, every[roots], rtol=1e-5, atol=1e-5)
    again = Linear(made.metadata(), "movie", 3, blocks=model.parts[0].names)
    assert not again(Batch.of(made)).any()  # not fitted: it adds nothing
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(Batch.of(made)), every)
    assert not any(p.requires_grad for p in model.parameters())


def test_no_two_weights_share_memory_so_that_they_can_be_stored() -> None:
    made = graph()
    part = WideChannels(
        Task(made.metadata(), "movie", 3),
        blocks=["movie-actor:features:unit", "movie-director-movie-actor:features:unit"],
    )
    whole = Batch(made.x_dict, made.edge_index_dict)
    rows_of = part.rows(whole)
    part.fill([torch.zeros(each.width, 3) for each in rows_of], torch.zeros(3), rows_of)
    places = [w.data_ptr() for w in part.state_dict().values() if w.numel()]
    assert len(set(places)) == len(places) > 4


def test_the_order_of_products_is_the_cheapest_that_is_not_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    sizes = [50, 300, 50, 300, 50, 7]
    hub = [(random.random((a, b)) < 0.03).astype(np.float32) for a, b in pairwise(sizes)]
    chain = [csr_array(matrix) for matrix in hub]
    expected = reduce(np.matmul, hub)
    for most in (2**26, 3000):
        monkeypatch.setattr(blocks, "MOST_NUMBERS", most)
        (found,) = blocks._contracted(chain, 1, "all")
        np.testing.assert_allclose(found.toarray(), expected, rtol=1e-5)
    left, right = blocks._contracted(chain[:4], 2, "there and back")
    np.testing.assert_allclose((left @ right).toarray(), reduce(np.matmul, hub[:4]), rtol=1e-5)
    monkeypatch.setattr(blocks, "MOST_NUMBERS", 100)
    with pytest.raises(TooLarge, match="block all: it would hold"):
        blocks._contracted(chain, 1, "all")


def test_beliefs_are_read_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made = graph()
    block = Block.parse("movie-actor-movie:beliefs:plain", made.metadata())
    before = rows(block, made)
    beliefs = torch.rand(made.sizes["movie"], 3)
    nodes = np.arange(20)
    expected = before.reading(beliefs)(nodes).toarray()
    monkeypatch.setattr(blocks, "MOST_NUMBERS", 1)
    np.testing.assert_array_equal(before.reading(beliefs)(nodes).toarray(), expected)


def test_weights_follow_ids_to_a_graph_that_numbers_them_otherwise() -> None:
    made, model = fitted()
    before = model(Batch.of(made))
    part = model.parts[0]
    assert isinstance(part, WideChannels)
    (kind, *_) = part.id_types
    size = made.sizes[kind]
    order = torch.randperm(size, generator=torch.Generator().manual_seed(0))
    place = torch.empty_like(order)
    place[order] = torch.arange(size)
    links = {
        e: torch.stack(
            [place[row] if t == kind else row for t, row in zip((e[0], e[2]), pairs, strict=True)]
        )
        for e, pairs in made.links.items()
    }
    nodes = made.nodes[kind]
    assert nodes.x is not None
    moved = replace(nodes, x=nodes.x.to_dense()[order].to_sparse_csr())
    other = replace(made, links=links, nodes=made.nodes | {kind: moved})
    part.renumber(kind, place, size)
    after = model(Batch.of(other))
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


def test_logits_of_blocks_add_up() -> None:
    made, model = fitted()
    part = model.parts[0]
    given = part(Batch(made.x_dict, made.edge_index_dict))
    assert len(given) == len(part.names)
    total = torch.stack(given).sum(0)
    torch.testing.assert_close(model(Batch.of(made)), total)

"""Chains against SciPy's sparse products and plain recursion."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch_geometric.data import HeteroData
from torch_geometric.transforms import AddMetaPaths

from graphs import chains
from hanme.errors import HanmeError
from hanme.graph.chain import Chain, Restriction
from hanme.graph.metapath import Metapath


def graph(edges: dict, sizes: dict) -> HeteroData:
    data = HeteroData()
    for node_type, size in sizes.items():
        data[node_type].num_nodes = size
    for edge_type, pairs in edges.items():
        data[edge_type].edge_index = (
            torch.tensor(pairs, dtype=torch.long).view(-1, 2).t().contiguous()
        )
    return data


def chain_of(data: HeteroData, text: str) -> Chain:
    sizes = {t: data[t].num_nodes for t in data.node_types}
    return Chain.build(Metapath.parse(text, data.metadata()), data.edge_index_dict, sizes)


MOVIES = graph(
    {
        ("m", "to", "a"): [[0, 0], [0, 1], [1, 1], [2, 2]],  # actor 2 plays in 2 alone; 3 is alone
        ("a", "to", "m"): [[0, 0], [1, 0], [1, 1]],  # actor 2 leads nowhere: a dead end
    },
    {"m": 4, "a": 3},
)


def recursion(chain: Chain, root: int) -> list[tuple[int, ...]]:
    found = [(root,)]
    for indptr, indices in zip(chain.indptr, chain.indices, strict=True):
        found = [
            (*walk, int(node))
            for walk in found
            for node in indices[int(indptr[walk[-1]]) : int(indptr[walk[-1] + 1])]
        ]
    return found


@given(chains(), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_blocks_of_a_root_are_its_instances_in_order(chain: Chain, size: int) -> None:
    for root in range(chain.sizes[0]):
        blocks = list(chain.blocks(root, size))
        assert all(len(block) <= size for block in blocks)
        every = chain.instances(torch.tensor([root]))
        for field in ("nodes", "links", "number"):
            got = torch.cat([getattr(block, field) for block in blocks])
            assert torch.equal(got, getattr(every, field))


def test_lists_instances_with_the_nodes_in_between() -> None:
    chain = chain_of(MOVIES, "m-a-m")
    expected = [[0, 0, 0], [0, 1, 0], [0, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert chain.instances().nodes.tolist() == expected
    assert chain.count().tolist() == [3, 2, 0, 0]
    assert chain.instances().number.tolist() == [0, 1, 2, 0, 1]


def test_some_roots_in_any_order_and_none() -> None:
    chain = chain_of(MOVIES, "m-a-m")
    assert chain.instances(torch.tensor([1, 3, 0])).nodes[:, 0].tolist() == [1, 1, 0, 0, 0]
    assert len(chain.instances(torch.tensor([2, 3]))) == 0
    assert len(chain.instances(torch.tensor([], dtype=torch.long))) == 0


def test_a_relation_may_be_walked_twice_and_links_listed_twice() -> None:
    data = graph({("p", "cites", "p"): [[0, 1], [0, 1], [1, 2], [2, 2]]}, {"p": 3})
    assert chain_of(data, "p-p-p").count().tolist() == [2, 1, 1]
    assert chain_of(data, "p-p-p").instances().nodes.tolist() == [
        [0, 1, 2],
        [0, 1, 2],
        [1, 2, 2],
        [2, 2, 2],
    ]
    assert chain_of(data, "p-p-p").ends.indices[0].tolist() == [2, 2, 2]


def test_an_empty_relation_is_ordinary() -> None:
    data = graph({("m", "to", "a"): [], ("a", "to", "m"): []}, {"m": 2, "a": 2})
    chain = chain_of(data, "m-a-m")
    assert chain.count().tolist() == [0, 0]
    assert len(chain.instances()) == 0
    assert chain.ends.indices[0].numel() == 0


@settings(max_examples=100, deadline=None)
@given(chains())
def test_counts_equal_sparse_products(chain: Chain) -> None:
    product = None
    for hop in range(len(chain)):
        matrix = csr_array(
            (np.ones(chain.indices[hop].numel()), chain.indices[hop], chain.indptr[hop]),
            shape=chain.sizes[hop : hop + 2],
        )
        product = matrix if product is None else product @ matrix
    assert chain.count().tolist() == product.sum(1).astype(int).tolist()
    ends = chain.ends
    assert ends.count().tolist() == (product.toarray() > 0).sum(1).tolist()
    assert ends.metapath.node_types == (chain.metapath.node_types[0], chain.metapath.node_types[-1])


@settings(max_examples=100, deadline=None)
@given(chains())
def test_instances_equal_recursion_and_walk_finds_each_by_number(chain: Chain) -> None:
    instances = chain.instances()
    expected = [walk for root in range(chain.sizes[0]) for walk in recursion(chain, root)]
    assert [tuple(row) for row in instances.nodes.tolist()] == expected
    for hop in range(len(chain)):
        assert torch.equal(chain.indices[hop][instances.links[:, hop]], instances.nodes[:, hop + 1])
        assert torch.equal(chain.sources(hop)[instances.links[:, hop]], instances.nodes[:, hop])
    again = chain.walk(instances.nodes[:, 0], instances.number)
    assert torch.equal(again.nodes, instances.nodes)
    assert torch.equal(again.links, instances.links)


def test_more_instances_than_fit_a_number_are_refused() -> None:
    pairs = torch.cartesian_prod(torch.arange(50), torch.arange(50)).tolist()
    chain = chain_of(graph({("p", "to", "p"): pairs}, {"p": 50}), "-".join(["p"] * 14))
    with pytest.raises(HanmeError, match="2\\^62"):
        chain.count()


def test_ends_equal_pyg_add_metapaths() -> None:
    data = graph(
        {
            ("m", "to", "a"): torch.randint(0, 8, (30, 2)).unique(dim=0).tolist(),
            ("a", "to", "m"): torch.randint(0, 8, (30, 2)).unique(dim=0).tolist(),
        },
        {"m": 8, "a": 8},
    )
    chain = chain_of(data, "m-a-m").ends
    theirs = AddMetaPaths([[("m", "a"), ("a", "m")]])(data)["m", "metapath_0", "m"].edge_index
    ours = torch.stack([chain.sources(0), chain.indices[0]])
    assert sorted(map(tuple, ours.t().tolist())) == sorted(map(tuple, theirs.t().tolist()))


def test_a_link_to_a_node_that_is_not_there_is_named() -> None:
    data = graph({("m", "to", "a"): [[0, 7]], ("a", "to", "m"): [[0, 0]]}, {"m": 1, "a": 2})
    with pytest.raises(HanmeError, match="names nodes 7 to 7 of a, which has 2"):
        chain_of(data, "m-a-m")


# Restriction: several metapaths that share node types, on one random graph.

TYPES = ("a", "b", "c")
STEPS = [("a", "to", "b"), ("b", "of", "a"), ("b", "to", "c"), ("c", "of", "b"), ("a", "to", "a")]
PATHS = ("a-b", "a-a", "a-b-a", "a-a-a", "a-b-c", "a-b-c-b-a", "a-a-b-a")


def random_graph(seed: int, density: float = 0.3) -> HeteroData:
    """A graph of three small node types, with dead ends, links listed twice, and nodes apart."""
    rng = np.random.default_rng(seed)
    sizes = {t: int(rng.integers(1, 7)) for t in TYPES}
    edges = {}
    for source, name, target in STEPS:
        linked = np.argwhere(rng.random((sizes[source], sizes[target])) < density)
        edges[source, name, target] = [*linked.tolist(), *linked[rng.random(len(linked)) < 0.2]]
    return graph({step: np.array(pairs).tolist() for step, pairs in edges.items()}, sizes)


@st.composite
def asked(draw: st.DrawFn) -> tuple[HeteroData, list[str], torch.Tensor]:
    """A graph, some metapaths from type a, and some nodes of a, in any order and repeated."""
    data = random_graph(draw(st.integers(0, 10**6)), draw(st.sampled_from([0.0, 0.2, 0.5, 0.9])))
    texts = draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=3, unique=True))
    roots = draw(st.lists(st.integers(0, data["a"].num_nodes - 1), max_size=6))
    return data, texts, torch.tensor(roots, dtype=torch.long)


def walks(data: HeteroData, text: str, root: int) -> list[list[int]]:
    """The instances of a root by plain recursion over the edge lists, targets ascending."""
    found = [[root]]
    for step in Metapath.parse(text, data.metadata()).steps:
        pairs = data[step].edge_index.t().tolist()
        found = [[*w, t] for w in found for t in sorted(b for a, b in pairs if a == w[-1])]
    return found


@settings(max_examples=150, deadline=None)
@given(asked())
def test_a_piece_has_the_instances_of_its_roots_and_no_other_node(case) -> None:
    data, texts, roots = case
    chain = chain_of(data, texts[0])
    piece = chain.restrict(roots)
    assert piece.nodes["a"][piece.roots].tolist() == roots.tolist()
    expected = [walks(data, texts[0], root) for root in roots.tolist()]
    got, whole = piece.chain.instances(piece.roots), chain.instances(roots)
    types = chain.metapath.node_types
    lifted = [piece.nodes[t][ids] for t, ids in zip(types, got.nodes.t(), strict=True)]
    assert torch.stack(lifted, 1).tolist() == [walk for of_root in expected for walk in of_root]
    for mine, ids, theirs in zip(piece.links, got.links.t(), whole.links.t(), strict=True):
        assert torch.equal(mine[ids], theirs)
    assert torch.equal(got.number, whole.number)
    assert int(piece.chain.count().sum()) == len(piece.chain.instances(piece.roots.unique()))
    assert torch.equal(piece.chain.original(piece.roots), roots)
    touched = {t: set() for t in piece.nodes} | {"a": set(roots.tolist())}
    for walk in (walk for of_root in expected for walk in of_root):
        for node_type, node in zip(types, walk, strict=True):
            touched[node_type].add(node)
    assert {t: ids.tolist() for t, ids in piece.nodes.items()} == {
        t: sorted(ids) for t, ids in touched.items()
    }


@settings(max_examples=60, deadline=None)
@given(asked(), st.integers(0, 5))
def test_a_piece_of_a_piece_still_knows_its_roots(case, keep: int) -> None:
    data, texts, roots = case
    piece = chain_of(data, texts[0]).restrict(roots)
    again = piece.chain.restrict(piece.roots[:keep])
    assert torch.equal(again.chain.original(again.roots), roots[:keep])
    counts = [len(walks(data, texts[0], root)) for root in roots[:keep].tolist()]
    assert again.chain.count()[again.roots].tolist() == counts


@settings(max_examples=60, deadline=None)
@given(asked())
def test_distinct_ends_restrict_before_or_after(case) -> None:
    data, texts, roots = case
    chain = chain_of(data, texts[0])
    links = [part.clone() for part in (*chain.indptr, *chain.indices)]
    after, before = chain.ends.restrict(roots), chain.restrict(roots)
    assert all(map(torch.equal, links, (*chain.indptr, *chain.indices)))  # not summed in place
    for piece, ends in ((after, after.chain), (before, before.chain.ends)):
        found = ends.instances(piece.roots).nodes
        last = piece.nodes[ends.metapath.node_types[-1]][found[:, 1]]
        got = list(zip(ends.original(found[:, 0]).tolist(), last.tolist(), strict=True))
        assert got == [
            (root, end)
            for root in roots.tolist()
            for end in sorted({walk[-1] for walk in walks(data, texts[0], root)})
        ]


def test_only_roots_that_are_there() -> None:
    chain = chain_of(random_graph(1, 0.9), "a-b-a")
    for roots, message in (
        (torch.tensor([-1]), "`roots` to be from 0 to"),
        (torch.tensor([99]), "`roots` to be from 0 to"),
        (torch.tensor([0.0]), "`roots` to be node ids"),
        (torch.tensor([[0]]), "`roots` to be node ids"),
    ):
        with pytest.raises(HanmeError, match=message):
            chain.restrict(roots)
    piece: Restriction = chain.restrict(torch.tensor([0], dtype=torch.int32))
    assert piece.roots.dtype == torch.long


def test_instances_that_are_unfolded_share_the_nodes_up_to_where_they_part() -> None:
    chain = chain_of(MOVIES, "m-a-m")
    unfolded, _ = chain.unfold(chain.instances(), torch.arange(4))
    assert unfolded.sizes == (4, 3, 5)  # two of movie 0, and two of movie 1, go through actor 1
    assert unfolded.nodes_of(unfolded.instances()).equal(chain.instances().nodes)


def test_node_numbers_of_32_bits_lead_where_those_of_64_bits_do() -> None:
    size = 60_000  # its square exceeds an int32
    links = torch.randint(size, (2, 2_000), generator=torch.Generator().manual_seed(0))
    metapath = Metapath.of("a-b", (["a", "b"], [("a", "to", "b")]))
    narrow = {("a", "to", "b"): links.int()}
    chain = Chain.build(metapath, narrow, {"a": size, "b": size})
    assert chain.instances().nodes.tolist() == sorted(links.t().tolist())
    assert links[:, chain.link_ids(0, narrow["a", "to", "b"])].t().tolist() == sorted(
        links.t().tolist()
    )


def test_chains_of_different_roots_on_the_same_links_are_kept_apart() -> None:
    metapath = Metapath.parse("m-a", MOVIES.metadata())
    links, sizes = MOVIES.edge_index_dict, {"m": 4, "a": 3}
    ids = [torch.arange(4) + 10, torch.arange(4) + 20]
    roots = [None, ids[0], ids[1], None]
    found = [Chain.cached(metapath, links, sizes, each).root_ids for each in roots]
    assert all(each is given for each, given in zip(found, roots, strict=True))
    assert Chain.cached(metapath, links, sizes) is Chain.cached(metapath, links, sizes)

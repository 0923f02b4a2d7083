from threading import Thread

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from hanme.errors import HanmeError
from hanme.graph import Nodes
from hanme.graph.features import fill_features, to_torch


def graph(sizes, links, features=()):
    """Nodes by type and links by edge type, the first two arguments of fill_features."""
    nodes = {kind: Nodes(kind, size) for kind, size in sizes.items()}
    for kind, x in dict(features).items():
        x = torch.tensor(x, dtype=torch.float32).view(sizes[kind], -1)
        nodes[kind].x = x.to_sparse_csr()
    edges = {e: torch.tensor(pairs, dtype=torch.long).view(-1, 2).t() for e, pairs in links.items()}
    return nodes, edges


def mean_oracle(data, kind, neighbours, x):
    """The mean over every link into a node, one link at a time."""
    nodes, links = data
    parts = []
    for neighbour in neighbours:
        total = np.zeros((nodes[kind].num_nodes, x[neighbour].shape[1]))
        count = np.zeros(nodes[kind].num_nodes)
        for (start, _, end), edge_index in links.items():
            if (start, end) == (neighbour, kind):
                for i, j in edge_index.t().tolist():
                    total[j] += x[neighbour][i]
                    count[j] += 1
        parts.append(total / np.maximum(count, 1)[:, None])
    return np.hstack(parts)


@pytest.fixture
def chain():
    """paper -> author -> city, and a type that nothing leads to."""
    sizes = {"paper": 3, "author": 4, "city": 2, "alone": 2}
    links = {
        ("paper", "to", "author"): [(0, 0), (1, 0), (1, 1), (1, 1), (2, 2)],
        ("paper", "cites", "paper"): [(0, 1)],
        ("author", "to", "city"): [(0, 0), (1, 0), (3, 1)],
        ("alone", "to", "paper"): [(0, 0)],
    }
    features = {"paper": [[1, 0, 2], [0, 4, 0], [0, 0, 0.5]], "city": [[1, 2], [3, 4]]}
    return graph(sizes, links, features)


def test_mean_spreads_outward_from_the_target(chain):
    data = fill_features(*chain, "paper", "mean")
    x = {"paper": chain[0]["paper"].x.to_dense().numpy()}
    x["author"] = mean_oracle(chain, "author", ["paper"], x)
    x["city"] = mean_oracle(chain, "city", ["author"], x)
    x["alone"] = np.eye(2)
    for kind, expected in x.items():
        assert data[kind].x.layout == torch.sparse_csr
        assert data[kind].x.dtype == torch.float32
        np.testing.assert_allclose(data[kind].x.to_dense(), expected, rtol=1e-6)
    assert not data["author"].x.to_dense()[3].any()  # no neighbours, no features


def test_given_keeps_what_is_there(chain):
    data = fill_features(*chain, "paper", "given")
    torch.testing.assert_close(data["city"].x.to_dense(), chain[0]["city"].x.to_dense())
    x = {"paper": chain[0]["paper"].x.to_dense().numpy()}
    expected = mean_oracle(chain, "author", ["paper"], x)
    np.testing.assert_allclose(data["author"].x.to_dense(), expected, rtol=1e-6)


def test_given_and_ids_for_the_others(chain):
    data = fill_features(*chain, "paper", "given-onehot")
    for kind in ("paper", "city"):
        torch.testing.assert_close(data[kind].x.to_dense(), chain[0][kind].x.to_dense())
    torch.testing.assert_close(data["author"].x.to_dense(), torch.eye(data["author"].num_nodes))


def test_onehot(chain):
    data = fill_features(*chain, "paper", "onehot")
    torch.testing.assert_close(data["paper"].x.to_dense(), chain[0]["paper"].x.to_dense())
    for kind in ("author", "city", "alone"):
        torch.testing.assert_close(data[kind].x.to_dense(), torch.eye(data[kind].num_nodes))


def test_neighbour_types_stand_side_by_side():
    sizes = {"a": 2, "b": 2, "c": 3}
    links = {("a", "to", "c"): [(0, 0), (1, 2)], ("b", "to", "c"): [(1, 0), (0, 0), (0, 1)]}
    data = graph(sizes, links, {"a": [[1], [2]], "b": [[3, 4], [5, 6]]})
    x = {kind: data[0][kind].x.to_dense().numpy() for kind in ("a", "b")}
    filled = fill_features(*data, "a", "given")["c"].x.to_dense()
    np.testing.assert_allclose(filled, mean_oracle(data, "c", ["a", "b"], x))


def test_relations_between_the_same_types_are_pooled():
    links = {("a", "cite", "b"): [(0, 0), (0, 0)], ("a", "ref", "b"): [(1, 0)]}
    data = graph({"a": 2, "b": 1}, links, {"a": [[3.0], [9.0]]})
    assert fill_features(*data, "a", "mean")["b"].x.to_dense().item() == pytest.approx(5)


@pytest.mark.parametrize("how", ["mean", "onehot", "given", "given-onehot"])
def test_nothing_to_average(how):
    links = {("a", "to", "b"): [(0, 0)], ("b", "to", "a"): [(0, 0)]}
    data = fill_features(*graph({"a": 2, "b": 3}, links), "a", how)
    for kind in ("a", "b"):
        torch.testing.assert_close(data[kind].x.to_dense(), torch.eye(data[kind].num_nodes))


def test_dense_features():
    nodes, links = graph({"a": 2, "b": 2}, {("a", "to", "b"): [(0, 1), (1, 1)]})
    nodes["a"].x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    nodes["b"].x = torch.ones(2, 5)
    filled = fill_features(nodes, links, "a", "mean")
    assert filled["a"].x is nodes["a"].x
    torch.testing.assert_close(filled["b"].x.to_dense(), torch.tensor([[0.0, 0.0], [2.0, 3.0]]))
    assert nodes["b"].x.shape == (2, 5)  # the nodes that were passed are left as they were


def test_empty_type():
    data = graph({"a": 1, "b": 0}, {("a", "to", "b"): []}, {"a": [[1, 2]]})
    assert fill_features(*data, "a", "mean")["b"].x.shape == (0, 2)
    assert fill_features(*data, "a", "onehot")["b"].x.shape == (0, 0)


def test_unknown_option_and_target(chain):
    with pytest.raises(HanmeError, match=r"mean, onehot, given.*'median'"):
        fill_features(*chain, "paper", "median")
    with pytest.raises(HanmeError, match=r"target.*'movie'"):
        fill_features(*chain, "movie", "mean")


@given(st.data())
def test_mean_against_the_oracle(draw):
    size = draw.draw(st.integers(1, 6)), draw.draw(st.integers(1, 6))
    pair = st.tuples(st.integers(0, size[0] - 1), st.integers(0, size[1] - 1))
    value = st.floats(-10, 10, width=32)
    x = [[draw.draw(value) for _ in range(3)] for _ in range(size[0])]
    links = {("a", "to", "b"): draw.draw(st.lists(pair, max_size=15))}
    data = graph({"a": size[0], "b": size[1]}, links, {"a": x})
    filled = fill_features(*data, "a", "mean")["b"].x
    expected = mean_oracle(data, "b", ["a"], {"a": np.array(x)})
    np.testing.assert_allclose(filled.to_dense(), expected, rtol=1e-5, atol=1e-5)
    columns = filled.col_indices().tolist()
    for start, end in zip(filled.crow_indices()[:-1], filled.crow_indices()[1:], strict=True):
        assert columns[start:end] == sorted(set(columns[start:end]))


def test_threads_leave_no_check_of_sparse_tensors_behind() -> None:
    matrix = csr_array(np.eye(50, dtype=np.float32))

    def convert() -> None:
        for _ in range(1000):
            to_torch(matrix)

    threads = [Thread(target=convert) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not torch.sparse.check_sparse_tensor_invariants.is_enabled()


def test_entries_in_any_order_and_twice_are_put_in_order() -> None:
    matrix = csr_array(
        (np.array([1, 2, 4], np.float32), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3)
    )
    assert to_torch(matrix).to_dense().tolist() == [[2, 0, 5]]
    assert matrix.nnz == 3


def test_words_of_names_are_features() -> None:
    names = ["death_of_wife", "Death of a Son", "", "son_2"]
    keywords = Nodes("keyword", 4, None, names)
    x = fill_features(
        {"movie": Nodes("movie", 1, torch.ones(1, 2)), "keyword": keywords}, {}, "movie", "names"
    )["keyword"].x
    assert x.to_dense().tolist() == [[1, 1, 0], [1, 1, 1], [0, 0, 0], [0, 0, 1]]  # death, of, son

"""Nodes by number, id and name; many texts in one array."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanme.errors import HanmeError
from hanme.graph import Nodes, Texts

FILMS = Nodes(
    "film",
    4,
    names=["The Silver River", "One", "One", "3"],
    ids=Texts.of(["f1", "f2", "One", "x"]),
)


@pytest.mark.parametrize(
    ("node", "number"), [(2, 2), ("f1", 0), ("The Silver River", 0), ("One", 2), ("3", 3)]
)
def test_a_text_is_an_id_before_it_is_a_name(node: int | str, number: int) -> None:
    assert FILMS.find(node) == number


def test_without_ids_a_text_may_be_a_number() -> None:
    nodes = Nodes("film", 4, names=["a", "b", "2", "b"])
    assert (nodes.find("1"), nodes.find("2"), nodes.find(3)) == (1, 2, 3)
    assert (nodes.title(1), nodes.identity(1)) == ("b", "1")
    assert (Nodes("film", 4).title(1), FILMS.title(0), FILMS.identity(0)) == (
        "film 1", "The Silver River", "f1"
    )  # fmt: skip
    with pytest.raises(HanmeError, match=r"film 'b': 2 nodes have that name; .* by number: 1, 3$"):
        nodes.find("b")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (4, "film 4: there are 4, numbered from 0"),
        (-1, "film -1: there are 4"),
        ("0", "film '0': no node has that id or name"),
    ],
)
def test_no_such_node(node: int | str, message: str) -> None:
    with pytest.raises(HanmeError, match=message):
        FILMS.find(node)
    with pytest.raises(TypeError):
        FILMS.find(1.5)  # type: ignore[arg-type]


@given(st.lists(st.text()))
def test_texts(texts: list[str]) -> None:
    held = Texts.of(texts)
    assert list(held) == [held[i] for i in range(len(texts))] == texts
    assert held == texts
    assert [held[i - len(texts)] for i in range(len(texts))] == texts
    for text in texts:
        assert held.find(text) == [i for i, other in enumerate(texts) if other == text]
    assert held[1:3] == texts[1:3]
    with pytest.raises(IndexError):
        held[len(texts)]

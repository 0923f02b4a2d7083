"""Which nodes a text filters, against a loop over all names and ids."""

import random
import time

import pytest

from hanme.graph import Nodes
from hanme.serve.search import Search, plain

WORDS = ("film", "Zoë", "the_wall", "of", "an", "Ångström", "films", "a", "日本", "wa")


def drawn(count: int) -> dict[str, Nodes]:
    rng = random.Random(2)
    names = [" ".join(rng.choices(WORDS, k=rng.randrange(4))) for _ in range(count)]
    ids = [f"F{i:05}" for i in range(count)]
    people = [f"{name} film" for name in names]
    return {
        "person": Nodes("person", count, names=people),
        "film": Nodes("film", count, names=names, ids=ids),
        "year": Nodes("year", count),
    }


@pytest.fixture(scope="module")
def nodes() -> dict[str, Nodes]:
    return drawn(2_000)


@pytest.mark.parametrize(
    "query",
    [
        "film",
        "FILM",
        "a",
        "zoe",
        "the wall",
        "wall f",
        "f00012",
        "0012",
        "日",
        "m z",
        "l  F",
        "flm",
    ],
)
def test_a_filter_has_every_node_with_the_text_and_no_other(
    nodes: dict[str, Nodes], query: str
) -> None:
    found = Search(nodes).containing(query, "film").tolist()
    sought = plain(query).strip()
    texts = [
        [plain(str(text)).strip() for text in pair]
        for pair in zip(nodes["film"].names, nodes["film"].ids, strict=True)
    ]
    assert sorted(found) == [i for i, pair in enumerate(texts) if any(sought in t for t in pair)]
    assert query != "flm" or not found  # misspelt

    def rank(i: int) -> tuple[int, int]:
        fits = [
            (
                [text == sought, text.startswith(sought), f" {sought}" in text, True].index(True),
                text,
            )
            for text in texts[i]
            if sought in text
        ]
        return min((how, len(text.encode())) for how, text in fits)

    assert list(map(rank, found)) == sorted(map(rank, found))


def test_a_type_without_names_is_filtered_by_number(nodes: dict[str, Nodes]) -> None:
    found = Search(nodes).containing("19", "year").tolist()
    assert sorted(found) == [i for i in range(2_000) if "19" in str(i)]
    assert found[0] == 19
    assert len(Search(nodes).containing("\u0301", "year")) == 0  # an accent alone is nothing


@pytest.mark.slow
def test_a_filter_of_a_million_nodes_takes_less_than_a_second() -> None:
    many = Search({"film": Nodes("film", 1_000_000)})
    begin = time.monotonic()
    found = many.containing("12", "film")
    assert time.monotonic() - begin < 1
    assert len(found) == sum("12" in str(i) for i in range(10**6))

import pytest

from hanme.errors import HanmeError
from hanme.graph.metapath import Metapath, metapaths_between

METADATA = (
    ["movie", "actor", "tv-show"],
    [
        ("movie", "to", "actor"),
        ("actor", "to", "movie"),
        ("movie", "follows", "movie"),
        ("movie", "cites", "movie"),
        ("movie", "to", "tv-show"),
    ],
)


def test_reads_types() -> None:
    metapath = Metapath.parse("movie-actor-movie", METADATA)
    assert metapath.steps == (("movie", "to", "actor"), ("actor", "to", "movie"))
    assert metapath.node_types == ("movie", "actor", "movie")
    assert (metapath.root, len(metapath), str(metapath)) == ("movie", 2, "movie-actor-movie")


def test_reads_relation_names_where_two_join_the_same_types() -> None:
    metapath = Metapath.parse("movie-cites:movie-follows:movie-to:actor", METADATA)
    assert [step[1] for step in metapath.steps] == ["cites", "follows", "to"]
    assert str(metapath) == "movie-cites:movie-follows:movie-actor"
    assert Metapath.parse(str(metapath), METADATA) == metapath


def test_type_names_may_hold_a_hyphen() -> None:
    assert Metapath.parse("movie-tv-show", METADATA).node_types == ("movie", "tv-show")


def test_edge_types_and_metapaths_are_taken_as_well() -> None:
    metapath = Metapath.of([("movie", "to", "actor"), ("actor", "to", "movie")], METADATA)
    assert Metapath.of(metapath, METADATA) == metapath == Metapath.of(str(metapath), METADATA)
    assert len({metapath, Metapath.of(str(metapath), METADATA)}) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("film-actor", "the types are movie, actor, tv-show"),
        ("movie", "no step to ''; what .* is actor, follows:movie, cites:movie, tv-show"),
        ("movie-director-movie", "no step to 'director'; what fits after movie is actor"),
        ("movie-movie", "2 relations go from movie to movie; name one of movie-follows:movie"),
        ("movie-tv-show-movie", "no relation starts at tv-show"),
        ("movie-to:movie", "no step to 'to:movie'"),
        ("movie-actor-", "from actor there is no step to ''"),
        ("", "starts at no node type"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(text: str, message: str) -> None:
    with pytest.raises(HanmeError, match=message):
        Metapath.parse(text, METADATA)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "at least one step"),
        ([("movie", "to", "director")], "no such relation"),
        ([("movie", "to", "actor"), ("movie", "to", "actor")], "ends at actor, the next starts"),
        ([("movie", "actor")], "no such relation; the graph has"),
    ],
)
def test_edge_types_that_do_not_join_are_refused(steps: list, message: str) -> None:
    with pytest.raises(HanmeError, match=message):
        Metapath.of(steps, METADATA)


def test_lists_all_metapaths_that_return() -> None:
    found = [str(metapath) for metapath in metapaths_between(METADATA, "movie", 2)]
    assert sorted(found) == sorted(
        ["movie-follows:movie", "movie-cites:movie", "movie-actor-movie"]
        + [f"movie-{a}:movie-{b}:movie" for a in ("follows", "cites") for b in ("follows", "cites")]
    )

"""Make a graph whose labels show only to those who look at the nodes in between.

The people of a movie are of two kinds: *specialists* work in movies of their one genre, *guests*
in any movie. A path movie-actor-movie through a specialist leads to a movie of the same genre, one
through a guest to any movie. Only the actor's own features tell which it was, so a model that sees
just the two ends of a path has to average over both.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph import EdgeType, Graph, Nodes, Split

Ints = NDArray[np.int64]

GENRES = "Drama Comedy Thriller Romance Action Horror Mystery Western Fantasy Musical War Crime"
ADJECTIVES = """amber bitter broken burning crimson distant empty endless fallen forgotten frozen
    gentle golden hidden hollow iron last lonely lost northern painted pale quiet restless scarlet
    secret silent silver slow stolen sunken velvet wandering white wild winding"""
NOUNS = """affair bridge carnival city coast crossing dancer empire garden harbour hotel hour house
    island journey letter lighthouse mirror mountain night orchard promise rain river road season
    shadow shore song stranger summer theatre tide train voyage winter"""
FIRST_NAMES = """Ada Aisha Akira Alma Amara Anton Beatriz Bruno Carmen Cyril Dalia Edith Elias Emeka
    Esther Farid Felix Greta Hana Hugo Ingrid Ivan Jonas Kavya Lars Leila Mateo Mira Nadia Noor Olga
    Oscar Paulo Rosa Samir Yuki"""
LAST_NAMES = """Abara Adler Almeida Bauer Bianchi Castillo Chen Dalal Dubois Eriksen Farouk Fischer
    Garcia Haddad Holm Ibarra Ito Jansen Kaya Kowalski Laurent Lindgren Mendes Moreau Nakamura Novak
    Okafor Petrov Quinn Rossi Sato Silva Tanaka Varga Weber Zhang"""

MOST = 10_000_000  # of anything that is counted
SECOND_GENRE = 0.4  # chance of a second genre, which may turn out to be the first again
KEYWORDS = 3  # per movie
TOPIC_WORDS = 5  # number of words specific to each genre and to each kind of person
LONG, SHORT = 50, 3  # words about a source and about any other movie
WORDS = 6  # about any other node


def planted(
    *,
    movies: int = 600,
    genres: int = 5,
    intermediate: float = 1.0,
    hops: int = 1,
    noise: float = 0.1,
    guests: int = 2,
    credits: int = 10,
    seed: int = 0,
) -> Graph:
    """Make a graph of movies, actors, directors and keywords, a part of whose paths carry genres.

    Movies stand on levels 0 to ``hops``. Those on level 0, the sources, show their genres in their
    words and have no label. Those on level ``hops``, half of all, are labelled, and their words are
    noise, as on any level between. For each of its genres and each neighbouring level a movie has
    a specialist, who plays on these two levels only: a chain of ``hops`` specialists leads from a
    labelled movie to sources of its genre, and no shorter one does. A movie's director is one out
    of a second such cast: the same signal, weaker. Keywords are noise.

    The words of people depend on their kind and never on their genre.

    Args:
        movies: Number of movies, at least ``10 * hops``.
        genres: Number of genres; a movie has one or two of them.
        intermediate: How surely people's words tell their kind, from 0 to 1: this share of them
            show their own kind, the others that of someone drawn at random.
        hops: Number of movie-person-movie steps from a labelled movie to sources of its genres.
        noise: Share of the sources' words, and of the specialists' links, that are random.
        guests: Number of guests in the cast of a movie.
        credits: Number of movies a person is in, about.
        seed: The same seed makes the same graph.

    Returns:
        A graph with word counts as features and 40, 20 and 40 % of the labelled movies to train,
        validate and test on. The ground truth is there to check against, not as input: ``level`` of
        movies and ``specialist`` of actors and directors, in their ``extra``.
    """
    _check_counts(1, genres=genres, hops=hops)
    _check_counts(10 * hops, movies=movies)
    _check_counts(0, guests=guests, seed=seed)
    _check_counts(2, credits=credits)
    _check_shares(intermediate=intermediate, noise=noise)
    rng = np.random.default_rng(seed)
    unlabelled, labelled = np.split(rng.permutation(movies), [movies // 2])
    level = np.full(movies, hops)
    level[unlabelled] = np.arange(len(unlabelled)) % hops
    genre = rng.integers(genres, size=(movies, 2))
    single = rng.random(movies) >= SECOND_GENRE
    genre[single, 1] = genre[single, 0]

    movie = _movies(rng, genre, level, genres, noise)
    links: dict[EdgeType, Tensor] = {}
    film, team = _cast(rng, genre, level, genres, noise, guests)
    actor = _people(links, rng, "actor", film, team, credits, intermediate)
    film, team = _cast(rng, genre, level, genres, noise, guests)
    film, one = np.unique(film, return_index=True)
    director = _people(links, rng, "director", film, team[one], credits, intermediate)
    film = rng.permutation(np.repeat(np.arange(movies), KEYWORDS))
    keyword = _keywords(links, rng, film, credits)
    y = torch.zeros(movies, genres)
    y[labelled[:, None], genre[labelled]] = 1
    return Graph(
        nodes={nodes.kind: nodes for nodes in (movie, actor, director, keyword)},
        links=links,
        target="movie",
        y=y,
        labels=_numbered(GENRES.split(), genres),
        split=_split(labelled, movies),
        metapaths=["movie-director-movie", "movie-actor-movie"],
    )


def _movies(rng: Generator, genre: Ints, level: Ints, genres: int, noise: float) -> Nodes:
    """Make movies: each word of a source is of one of its genres or, as elsewhere, neutral."""
    count = len(level)
    about = np.repeat(np.arange(count), np.where(level == 0, LONG, SHORT))
    topic = genre[about, rng.integers(2, size=len(about))]
    topic[(level[about] > 0) | (rng.random(len(about)) < noise)] = genres
    names = _names(rng, count, "The {} {}", ADJECTIVES.title(), NOUNS.title())
    x = _words(rng, about, topic, (count, genres + 1))
    return Nodes("movie", count, x, names, extra={"level": torch.from_numpy(level)})


def _split(labelled: Ints, movies: int) -> Split:
    """Cut the labelled movies, which come in random order, into three parts."""
    masks = torch.zeros(3, movies, dtype=torch.bool)
    bounds = [round(0.4 * len(labelled)), round(0.6 * len(labelled))]
    for mask, drawn in zip(masks, np.split(labelled, bounds), strict=True):
        mask[drawn] = True
    return Split(*masks)


def _people(
    links: dict[EdgeType, Tensor],
    rng: Generator,
    role: str,
    film: Ints,
    team: Ints,
    credits: int,
    intermediate: float,
) -> Nodes:
    """Make people of one role, who show in their words their own kind or, some, another's."""
    person, team_of = _deal(rng, team, credits)
    specialist = team_of > 0
    honest = rng.random(len(specialist)) < intermediate
    shown = np.where(honest, specialist, rng.permutation(specialist)).astype(np.int64)
    # All of a kind have the same words: they tell the kind, and not which person it is, whose genre
    # could then be learned by heart.
    x = torch.eye(2)[shown].repeat_interleave(TOPIC_WORDS, 1).to_sparse_csr()
    names = _names(rng, len(shown), "{} {}", FIRST_NAMES, LAST_NAMES)
    _connect(links, role, film, person)
    return Nodes(role, len(shown), x, names, extra={"specialist": torch.from_numpy(specialist)})


def _keywords(links: dict[EdgeType, Tensor], rng: Generator, film: Ints, credits: int) -> Nodes:
    """Make keywords, whose words and links are random."""
    keyword, team_of = _deal(rng, np.zeros_like(film), credits)
    about = np.repeat(np.arange(len(team_of)), WORDS)
    names = _names(rng, len(team_of), "{}-{}", ADJECTIVES, NOUNS)
    _connect(links, "keyword", film, keyword)
    x = _words(rng, about, 0 * about, (len(team_of), 1))
    return Nodes("keyword", len(team_of), x, names)


def _cast(
    rng: Generator, genre: Ints, level: Ints, genres: int, noise: float, guests: int
) -> tuple[Ints, Ints]:
    """Give each credit, in random order, a movie and a team to take the person from.

    Team 0 are the guests; each genre has a team of specialists per two neighbouring levels.
    """
    hops, everything = level.max(), np.arange(len(genre))
    film, wanted = np.divmod(np.unique(everything[:, None] * genres + genre), genres)
    film, wanted, step = np.concatenate(
        [
            (film[side], wanted[side], level[film[side]] - down)
            for side, down in ((level[film] > 0, 1), (level[film] < hops, 0))
        ],
        axis=1,
    )
    wanted = np.where(rng.random(len(film)) < noise, rng.integers(genres, size=len(film)), wanted)
    film = np.concatenate([film, np.repeat(everything, guests)])
    team = np.zeros_like(film)
    team[: len(step)] = 1 + wanted * hops + step
    order = rng.permutation(len(film))
    return film[order], team[order]


def _deal(rng: Generator, team: Ints, credits: int) -> tuple[Ints, Ints]:
    """Deal the credits of a team in turn; return the person of each, and each person's team."""
    size = np.bincount(team)
    people = -(-size // credits)
    turn = np.arange(len(team)) - np.repeat(np.cumsum(size) - size, size)
    person = np.empty_like(team)
    person[np.argsort(team, kind="stable")] = np.repeat(
        np.cumsum(people) - people, size
    ) + turn % np.repeat(people, size)
    number = rng.permutation(people.sum())  # so that an index tells nothing
    team_of = np.empty_like(number)
    team_of[number] = np.repeat(np.arange(len(people)), people)
    return number[person], team_of


def _words(rng: Generator, about: Ints, topic: Ints, shape: tuple[int, int]) -> Tensor:
    """Count random words of the given topics, by the node they are about; shape: nodes, topics."""
    word = topic * TOPIC_WORDS + rng.integers(TOPIC_WORDS, size=len(topic))
    index = torch.from_numpy(np.stack([about, word]))
    size = (shape[0], shape[1] * TOPIC_WORDS)
    return torch.sparse_coo_tensor(index, torch.ones(len(word)), size).coalesce().to_sparse_csr()


def _names(rng: Generator, count: int, pattern: str, *words: str) -> list[str]:
    """Fill the pattern with one word of each list, in random order."""
    choices = [pattern.format(*choice) for choice in product(*map(str.split, words))]
    return _numbered(rng.permutation(choices).tolist(), count)


def _numbered(choices: list[str], count: int) -> list[str]:
    """Take the choices in turn, with a number from the second turn on."""
    turns = (divmod(i, len(choices)) for i in range(count))
    return [f"{choices[i]} {turn + 1}" if turn else choices[i] for turn, i in turns]


def _connect(links: dict[EdgeType, Tensor], kind: str, film: Ints, other: Ints) -> None:
    edge_index = torch.from_numpy(np.unique(np.stack([film, other]), axis=1))
    links["movie", "to", kind] = edge_index
    links[kind, "to", "movie"] = edge_index.flip(0)


def _check_counts(least: int, **counts: int) -> None:
    for name, value in counts.items():
        if not isinstance(value, int) or not least <= value <= MOST:
            raise HanmeError(
                f"{name}: expected a whole number from {least} to {MOST}, got {value!r}"
            )


def _check_shares(**shares: float) -> None:
    for name, value in shares.items():
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise HanmeError(f"{name}: expected a number from 0 to 1, got {value!r}")

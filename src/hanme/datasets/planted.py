"""A graph made on the spot, whose labels show only to those who look at the nodes in between.

The people of a movie are of two kinds: *specialists* work in movies of their one genre, *guests*
in any movie. A path movie-actor-movie through a specialist leads to a movie of the same genre, one
through a guest to any movie. Only the actor's own features tell which it was, so a model that sees
just the two ends of a path has to average over both.
"""

from itertools import product

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.errors import HanmeError

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

SECOND_GENRE = 0.4  # share of movies with two genres (or the same one drawn twice)
KEYWORDS = 3  # per movie
WORDS = 100  # in a movie's synopsis
GENRE_WORDS = 4  # each genre has so many words of its own
PLAIN_WORDS = 4  # words that no genre has
KIND_WORDS = 8  # how often a person's kind, guest or specialist, is mentioned


def planted(
    *,
    movies: int = 600,
    genres: int = 5,
    intermediate: float = 1.0,
    hops: int = 1,
    noise: float = 0.1,
    guests: int = 2,
    credits: int = 10,
    seed: int = 483,
) -> HeteroData:
    r"""Makes a graph of movies, actors, directors and keywords whose genres travel on some paths.

    Movies stand on levels 0 to `hops`. Those on level 0, the sources, show their genres in their
    words and have no label. Those on level `hops`, half of all, are labelled, and their words are
    noise, as on any level between. For each of its genres and each neighbouring level, a movie has
    a specialist who plays on these two levels only: a chain of `hops` specialists leads from a
    labelled movie to sources of its genre, and no shorter one does. A movie's director is one of a
    second such cast: the same signal, weaker. Keywords are noise.

    The words of people depend on their kind and never on their genre.

    Args:
        movies: Number of movies, at least ``10 * hops``.
        genres: Number of genres; a movie has one or two of them.
        intermediate: How surely people's words tell their kind, from 0 to 1: that share of them
            shows their own kind, the rest that of someone drawn at random.
        hops: Number of movie-person-movie steps from a labelled movie to sources of its genres.
        noise: Share of the sources' words, and of the specialists' links, that are random.
        guests: Number of guests in a movie.
        credits: Number of movies a person is in, about.
        seed: The same seed makes the same graph.

    Returns:
        A graph with sparse CSR :obj:`x`, :obj:`num_nodes` and :obj:`name` for each type; for movies
        also :obj:`y` (zero where unlabelled), :obj:`label_names` and :obj:`train_mask`,
        :obj:`val_mask`, :obj:`test_mask` (40, 20 and 40 % of the labelled). The ground truth is
        there to check against, not to learn from: :obj:`level` of movies and :obj:`specialist` of
        actors and directors.

    Raises:
        HanmeError: If an argument is out of its range.
    """
    _check_counts(genres=genres, hops=hops, guests=guests, credits=credits)
    _check_shares(intermediate=intermediate, noise=noise)
    if movies < 10 * hops:
        raise HanmeError(f"Expected `movies` to be at least 10 * hops = {10 * hops}, got {movies}.")
    rng = np.random.default_rng(seed)
    unlabelled, labelled = np.split(rng.permutation(movies), [movies // 2])
    level = np.full(movies, hops)
    level[unlabelled] = np.arange(len(unlabelled)) % hops
    genre = rng.integers(genres, size=(movies, 2))
    single = rng.random(movies) >= SECOND_GENRE
    genre[single, 1] = genre[single, 0]

    data = HeteroData()
    data.target, data.multilabel = "movie", True
    movie = data["movie"]
    movie.x = _synopses(rng, genre, genres, noise, shown=level == 0)
    movie.num_nodes = movies
    movie.name = _names(rng, movies, "The {} {}", ADJECTIVES.title(), NOUNS.title())
    movie.y = torch.zeros(movies, genres)
    movie.y[labelled[:, None], genre[labelled]] = 1
    movie.label_names = _names(rng, genres, "{}", GENRES)
    movie.level = torch.from_numpy(level)
    parts = np.split(labelled, [int(0.4 * len(labelled)), int(0.6 * len(labelled))])
    for mask, part in zip(("train_mask", "val_mask", "test_mask"), parts, strict=True):
        movie[mask] = torch.zeros(movies, dtype=torch.bool)
        movie[mask][part] = True

    for role in ("actor", "director"):
        link, team = _cast(rng, genre, level, noise, guests)
        if role == "director":
            link, one = np.unique(link, return_index=True)
            team = team[one]
        person, team_of = _deal(rng, team, credits)
        specialist = team_of > 0
        own = rng.random(len(specialist)) < intermediate
        shown = np.where(own, specialist, rng.permutation(specialist)).astype(np.int64)
        node = data[role]
        # All of a kind have the same words: they tell the kind, not the person.
        node.x = _counts(np.tile(shown[:, None], KIND_WORDS), 2)
        node.num_nodes = len(shown)
        node.name = _names(rng, len(shown), "{} {}", FIRST_NAMES, LAST_NAMES)
        node.specialist = torch.from_numpy(specialist)
        _connect(data, role, link, person)

    link = np.repeat(np.arange(movies), KEYWORDS)
    person, team_of = _deal(rng, np.zeros_like(link), credits)
    node = data["keyword"]
    node.x = _counts(rng.integers(PLAIN_WORDS, size=(len(team_of), 1)), PLAIN_WORDS)
    node.num_nodes = len(team_of)
    node.name = _names(rng, len(team_of), "{}-{}", ADJECTIVES, NOUNS)
    _connect(data, "keyword", link, person)
    return data


def _cast(rng: Generator, genre: Ints, level: Ints, noise: float, guests: int) -> tuple[Ints, Ints]:
    """Returns the movie and the team of each credit, in random order.

    Team 0 is the guests. Each genre has one team of specialists per pair of neighbouring levels.
    """
    hops, genres = level.max(), genre.max() + 1
    movie, of = np.divmod(np.unique(np.arange(len(genre))[:, None] * genres + genre), genres)
    of = np.where(rng.random(len(of)) < noise, rng.integers(genres, size=len(of)), of)
    below, above = level[movie] > 0, level[movie] < hops
    step = np.concatenate([level[movie][below] - 1, level[movie][above]])
    movie = np.concatenate([movie[below], movie[above], np.repeat(np.arange(len(genre)), guests)])
    team = np.zeros_like(movie)
    team[: len(step)] = 1 + np.concatenate([of[below], of[above]]) * hops + step
    order = rng.permutation(len(movie))
    return movie[order], team[order]


def _deal(rng: Generator, team: Ints, credits: int) -> tuple[Ints, Ints]:
    """Deals each team's credits in turn to as many people as get `credits` each.

    Returns:
        The person of each credit and the team of each person.
    """
    size = np.bincount(team)
    people = -(-size // credits)
    order = np.argsort(team, kind="stable")
    turn = np.arange(len(team)) - np.repeat(np.cumsum(size) - size, size)
    person = np.empty_like(team)
    person[order] = np.repeat(np.cumsum(people) - people, size) + turn % np.repeat(people, size)
    number = rng.permutation(people.sum())
    team_of = np.empty_like(number)
    team_of[number] = np.repeat(np.arange(len(people)), people)
    return number[person], team_of


def _synopses(
    rng: Generator, genre: Ints, genres: int, noise: float, shown: NDArray[np.bool_]
) -> Tensor:
    """Word counts of movies: words of their genres, a share of `noise` any genre's; where the
    genres are not to be `shown`, plain words."""
    size = (len(genre), WORDS)
    of = np.where(rng.integers(2, size=size) == 0, genre[:, :1], genre[:, 1:])
    of = np.where(rng.random(size) < noise, rng.integers(genres, size=size), of)
    word = of * GENRE_WORDS + rng.integers(GENRE_WORDS, size=size)
    plain = genres * GENRE_WORDS + rng.integers(PLAIN_WORDS, size=size)
    return _counts(np.where(shown[:, None], word, plain), genres * GENRE_WORDS + PLAIN_WORDS)


def _counts(words: Ints, vocabulary: int) -> Tensor:
    """How often each word of the vocabulary is in each row, as sparse CSR."""
    x = np.zeros((len(words), vocabulary), dtype=np.float32)
    np.add.at(x, (np.arange(len(x))[:, None], words), 1)
    return torch.from_numpy(x).to_sparse_csr()


def _names(rng: Generator, count: int, pattern: str, *words: str) -> list[str]:
    """Fills the pattern with words, each choice of them once before any comes again, numbered."""
    choices = [pattern.format(*choice) for choice in product(*map(str.split, words))]
    order = rng.permutation(len(choices))
    return [
        choices[order[i % len(order)]] + (f" {i // len(order) + 1}" if i >= len(order) else "")
        for i in range(count)
    ]


def _connect(data: HeteroData, kind: str, movie: Ints, other: Ints) -> None:
    """Adds the relation between movies and a type, without duplicates, and its reverse."""
    edge = torch.from_numpy(np.unique(np.stack([movie, other]), axis=1))
    data["movie", "to", kind].edge_index = edge
    data[kind, "to", "movie"].edge_index = edge.flip(0)


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise HanmeError(f"Expected `{name}` to be at least 1, got {value}.")


def _check_shares(**shares: float) -> None:
    for name, value in shares.items():
        if not 0 <= value <= 1:
            raise HanmeError(f"Expected `{name}` to be from 0 to 1, got {value}.")

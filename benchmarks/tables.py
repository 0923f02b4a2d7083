"""A user's tables at scale: seconds and peak memory of reading them, opening them again, inspect.

The start of Python and its libraries, which is in all of them, is measured first.

    python benchmarks/tables.py [--films 1000000] [--people 500000] [--links 5000000]

Makes CSV files of films (each with a text of 20 words, a year and a label for one in two), people
and roles in a temporary folder, and a graph.toml with 100 features from the text. Each step is a
process of its own. Prints a line of JSON per step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from hanme.common.memory import in_mb

GRAPH = """
target = "film"
[nodes.film]
table = "films.csv"
id = "film_id"
name = "title"
label = "genre"
[nodes.film.features]
year = "number"
plot = {kind = "text", size = 100}
[nodes.person]
table = "people.csv"
id = "person_id"
name = "name"
[relations.played]
table = "roles.csv"
source = {type = "film", column = "film_id"}
target = {type = "person", column = "person_id"}
"""
STEPS = {
    "start": "from hanme.data import load",
    "build": "from hanme.data import load; load('graph.toml')",
    "open again": "from hanme.data import load; load('graph.toml')",
    "inspect": "import sys; from hanme.cli import main; "
    "sys.argv = ['hanme', 'inspect', 'graph.toml', '--json']; main()",
}


def make(folder: Path, films: int, people: int, links: int) -> None:
    # A word's rank is drawn so that few words are frequent and many are rare.
    word = "'w' || CAST(floor(exp(random() * ln(20000))) AS INTEGER)"
    words = " || ' ' || ".join([word] * 20)
    tables = {
        "films": f"SELECT 'film' || i AS film_id, 'Title ' || i AS title, 1950 + i % 75 AS year, "
        f"CASE WHEN i % 2 = 0 THEN 'genre' || i % 5 END AS genre, {words} AS plot "
        f"FROM range({films}) AS t(i)",
        "people": f"SELECT 'person' || i AS person_id, 'Name ' || i AS name "
        f"FROM range({people}) AS t(i)",
        "roles": f"SELECT 'film' || CAST(floor(random() * {films}) AS INTEGER) AS film_id, "
        f"'person' || CAST(floor(random() * {people}) AS INTEGER) AS person_id "
        f"FROM range({links}) AS t(i)",
    }
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.483)")
        for name, select in tables.items():
            connection.execute(f"COPY ({select}) TO '{folder / name}.csv' (HEADER true)")
    (folder / "graph.toml").write_text(GRAPH)


def measure(step: str, folder: Path) -> dict[str, object]:
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", STEPS[step]],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"HANME_CACHE": str(folder / "cache")},
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{step} failed")
    return {
        "step": step,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": round(in_mb(usage.ru_maxrss)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--films", type=int, default=1_000_000)
    parser.add_argument("--people", type=int, default=500_000)
    parser.add_argument("--links", type=int, default=5_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, arguments.films, arguments.people, arguments.links)
        size = sum(path.stat().st_size for path in folder.glob("*.csv"))
        print(json.dumps({**vars(arguments), "csv_mb": round(size / 1e6)}), flush=True)
        for step in STEPS:
            print(json.dumps(measure(step, folder)), flush=True)


if __name__ == "__main__":
    main()

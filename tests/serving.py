"""Runs to serve, hostile names among them, and a server process."""

from __future__ import annotations

import csv
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import requests

from hanme.runs import RunConfig, train

HOSTILE = (
    "<script>document.title = 'taken'</script>",
    '"><img src=x onerror="document.title=1">',
    "\u202egnorw eht yaw round\u2066",
    "long " * 2000,
    "Zoë Ångström",
    "a bell\x07 and a tab\t",
    "=HYPERLINK(1)",
    "a,b\"c'd",
)
"""Names that could lead a page or a table astray."""

GENRES = ("Drama", "<b>Action</b>", "\u202eymoC")


@dataclass(frozen=True)
class Server:
    """A server process."""

    url: str
    process: subprocess.Popen[str]
    token: str = ""

    @property
    def api(self) -> str:
        return f"{self.url}api/v1"

    def ask(self, path: str, **options: Any) -> requests.Response:
        """Send a request, without a proxy."""
        method = "POST" if "json" in options or "data" in options else "GET"
        with requests.Session() as session:
            session.trust_env = False
            session.headers["Authorization"] = f"Bearer {self.token}"
            return session.request(method, f"{self.api}/{path}", timeout=60, **options)

    def get(self, path: str, **options: Any) -> Any:
        """Return what an answer that must be right holds."""
        answer = self.ask(path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def serving(*arguments: object, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Start ``hanme serve`` on a free port, and stop it."""
    code = "from hanme.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--port", "0", *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | dict(environment or {}),
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert " on http://" in line, line + process.stderr.read()
        url, _, token = line.split()[-1].partition("?token=")
        yield Server(url, process, token)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
    finally:
        process.kill()
        process.communicate()


def hostile_tables(folder: Path) -> Path:
    """Write films and people whose names and labels are hostile."""
    rng = random.Random(4)

    def named(i: int) -> str:
        return HOSTILE[i] if i < len(HOSTILE) else f"{HOSTILE[i % len(HOSTILE)]} {i}"

    tables: dict[str, list[list[str]]] = {
        "films": [["id", "title", "genre"]],
        "people": [["id", "name"], *([f"p{i}", named(i)] for i in range(30))],
        "roles": [["film", "person"]],
    }
    for i in range(90):
        genre = i % 3
        tables["films"].append([f"f{i}", named(i), GENRES[genre] if i % 10 else ""])
        cast = {rng.randrange(10) * 3 + (genre if rng.random() < 0.8 else 0) for _ in range(3)}
        tables["roles"] += [[f"f{i}", f"p{person}"] for person in sorted(cast)]
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    (folder / "graph.toml").write_text(
        'target = "film"\n'
        '[nodes.film]\ntable = "films.csv"\nid = "id"\nname = "title"\nlabel = "genre"\n'
        '[nodes.person]\ntable = "people.csv"\nid = "id"\nname = "name"\n'
        '[relations.played]\ntable = "roles.csv"\n'
        'source = {type = "film", column = "film"}\ntarget = {type = "person", column = "person"}\n'
    )
    return folder / "graph.toml"


def number_tables(folder: Path) -> Path:
    """Write customers with numbers and the shops they visit; income and shops decide the label."""
    rng = random.Random(7)
    customers = [["id", "name", "age", "income", "plan", "leaves"]]
    visits = [["customer", "shop", "spent"]]
    for i in range(140):
        income = rng.randrange(10, 100)
        own = rng.sample(range(6) if income > 50 else range(4, 10), 2)
        leaves = income < 45 if rng.random() < 0.9 else income > 45
        label = "" if i % 7 == 0 else "yes" if leaves else "no"
        cells = [f"c{i}", f"Customer {i}", str(rng.randrange(18, 90)), f"{income}000"]
        customers.append([*cells, rng.choice("ABC"), label])
        visits += [[f"c{i}", f"s{shop}", str(rng.randrange(100))] for shop in own]
    shops = [["id", "name", "size"], *([f"s{i}", f"Shop {i}", str(10 * i)] for i in range(10))]
    for name, rows in (("customers", customers), ("shops", shops), ("visits", visits)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    (folder / "graph.toml").write_text(
        'target = "customer"\n'
        '[nodes.customer]\ntable = "customers.csv"\nid = "id"\nname = "name"\nlabel = "leaves"\n'
        '[nodes.customer.features]\nage = "number"\nplan = "category"\n'
        'income = {kind = "number", title = "yearly income", unit = "USD"}\n'
        '[nodes.shop]\ntable = "shops.csv"\nid = "id"\nname = "name"\n'
        '[nodes.shop.features]\nsize = "number"\n'
        '[relations.visits]\ntable = "visits.csv"\n'
        'source = {type = "customer", column = "customer"}\n'
        'target = {type = "shop", column = "shop"}\n'
        '[relations.plan]\ncolumns = "plan"\n'  # a cell that is a feature and a link as well
    )
    return folder / "graph.toml"


SMALL = {"hidden_channels": 16, "heads": 2}
METAPATHS = ["movie-director-movie", "movie-actor-movie"]


def train_runs(folder: Path) -> None:
    """Train what the tests ask about, five runs on three graphs; networks stay in any case."""
    with patch("hanme.training.trainer.GAIN", -1.0):
        _train_runs(folder)


def _train_runs(folder: Path) -> None:
    planted = {"name": "planted", "options": {"movies": 150}}
    quick = {"recipe": "paper", "epochs": 8, "lr": 0.02}
    model = {"name": "hanme", "options": {"metapaths": METAPATHS, **SMALL}}
    training = {**quick, "recipe": "default"}
    make = RunConfig.make
    train(make({"data": planted, "model": model, "training": training}), folder / "planted")
    train(make({"data": planted, "model": model, "training": quick}), folder / "paper")
    train(
        make(
            {
                "data": planted,
                "model": {"name": "sehgnn", "options": {"hidden_channels": 8}},
                "training": {"recipe": "paper", "epochs": 1},
            }
        ),
        folder / "closed",
    )
    (folder / "tables").mkdir()
    tables = {"name": str(hostile_tables(folder / "tables"))}
    metapaths = ["film-person-film"]
    model = {"name": "hanme", "options": {"metapaths": metapaths, **SMALL}}
    train(make({"data": tables, "model": model, "training": training}), folder / "hostile")
    (folder / "numbers-tables").mkdir()
    tables = {"name": str(number_tables(folder / "numbers-tables"))}
    model = {"name": "hanme", "options": {"metapaths": ["customer-shop-customer"], **SMALL}}
    train(make({"data": tables, "model": model, "training": training}), folder / "numbers")

"""Three trained runs and one server process for all tests."""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from filelock import FileLock

from hanme.runs import RunConfig, train
from hanme.training import RECIPES

SCRIPT = "<script>document.title = 'taken'</script>"
HOSTILE = (
    SCRIPT,
    '"><img src=x onerror="document.title=1">',
    "\u202egnorw eht yaw round\u2066",
    "long " * 2000,
    "Zoë Ångström",
    "null\tand\x07bell",
    "=HYPERLINK(1)",
    "a,b\"c'd",
)
"""Names that a page or a table could be led astray by."""


def hostile_tables(folder: Path) -> None:
    """Write films and people whose names and labels are hostile."""
    rng = random.Random(4)
    people = [[f"p{i}", HOSTILE[i % len(HOSTILE)] + (f" {i}" if i > 7 else "")] for i in range(30)]
    genres = ["Drama", "<b>Action</b>", "‮ymoC"]
    films, roles = [], []
    for i in range(90):
        genre = i % 3
        films.append([f"f{i}", f"{HOSTILE[i % len(HOSTILE)]} {i}" if i > 7 else HOSTILE[i], genre])
        films[-1][2] = genres[genre] if i % 5 else ""
        cast = {rng.randrange(10) * 3 + (genre if rng.random() < 0.8 else 0) for _ in range(3)}
        roles += [[f"f{i}", f"p{person}"] for person in sorted(cast)]
    for name, head, rows in (
        ("films", ["id", "title", "genre"], films),
        ("people", ["id", "name"], people),
        ("roles", ["film", "person"], roles),
    ):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *rows])
    (folder / "graph.toml").write_text(
        '[target]\ntype = "film"\nlabel = "genre"\n\n'
        '[nodes.film]\ntable = "films.csv"\nid = "id"\nname = "title"\n\n'
        '[nodes.person]\ntable = "people.csv"\nid = "id"\nname = "name"\n\n'
        '[links.roles]\ntable = "roles.csv"\nfrom = "film"\nto = "person"\n'
    )

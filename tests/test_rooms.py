"""Rooms import, load and contain what docs/design.md says."""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs" / "design.md").read_text()
STEPS = re.findall(r"`([\w/]+\.py): ([\w.]+)`", DESIGN)


def test_the_picture_shows_the_present_imports() -> None:
    drawn = runpy.run_path(str(ROOT / "tools" / "rooms.py"))["picture"]()
    assert (ROOT / "docs" / "rooms.svg").read_text() == drawn, "run: make picture"


@pytest.mark.parametrize(
    ("room", "heavy"),
    [
        ("hanme", ("torch", "duckdb", "optuna", "matplotlib")),
        ("hanme.nn", ("duckdb", "optuna", "matplotlib")),
        ("hanme.cli", ("torch", "duckdb", "optuna", "matplotlib")),
    ],
)
def test_a_room_loads_no_library_that_it_does_not_use(room: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {room}; print(*(name for name in {heavy!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(("file", "name"), sorted(set(STEPS)))
def test_a_step_of_a_walk_names_a_function_that_is_there(file: str, name: str) -> None:
    scope = ast.parse((ROOT / "src" / "hanme" / file).read_text()).body
    for part in name.split("."):
        named = [n for n in scope if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        found = [node for node in named if node.name == part]
        assert found
        scope = found[-1].body


def test_a_walk_has_fewer_than_twelve_steps() -> None:
    walks = DESIGN.partition("## Three walks")[2].partition("\n## ")[0].split("\n### ")[1:]
    assert len(walks) == 3
    for walk in walks:
        steps = re.findall(r"^\d+\. .*(?:\n   .*)*", walk, re.MULTILINE)
        assert 0 < len(steps) < 12
        assert all(re.search(r"`[\w/]+\.py: ", step) for step in steps)

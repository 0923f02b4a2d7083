"""Packages import, load and contain what docs/design.md says."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs" / "design.md").read_text()
STEPS = re.findall(r"`([\w/]+\.py): ([\w.]+)`", DESIGN)


def test_the_table_lists_the_packages_by_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [layer.split(" | ") for layer in contracts["contracts"][0]["layers"]]
    table = DESIGN.partition("## The packages")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    height = {package: i for i, layer in enumerate(layers) for package in layer}
    assert sorted(listed) == sorted(height)
    assert listed == sorted(listed, key=lambda package: height[package])


@pytest.mark.parametrize(
    ("package", "heavy"),
    [
        ("hanme", ("torch", "duckdb", "optuna", "matplotlib")),
        ("hanme.nn", ("duckdb", "optuna", "matplotlib")),
        ("hanme.cli", ("torch", "duckdb", "optuna", "matplotlib")),
    ],
)
def test_a_package_loads_no_library_that_it_does_not_use(
    package: str, heavy: tuple[str, ...]
) -> None:
    code = f"import sys, {package}; print(*(name for name in {heavy!r} if name in sys.modules))"
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
    walks = (
        DESIGN.partition("## Walks through the code")[2].partition("\n## ")[0].split("\n### ")[1:]
    )
    assert len(walks) >= 3
    for walk in walks:
        steps = re.findall(r"^\d+\. .*(?:\n   .*)*", walk, re.MULTILINE)
        assert 0 < len(steps) < 12
        assert all(re.search(r"`[\w/]+\.py: ", step) for step in steps)

"""The API reference lists what the public packages offer."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import hanme

PAGES = Path(__file__).parents[1] / "docs" / "reference"
HIDDEN = {"__main__", "cli", "common", "experiments", "serve"}  # not for use from Python
PACKAGES = ["hanme", "hanme.nn.channels"] + [
    f"hanme.{m.name}" for m in pkgutil.iter_modules(hanme.__path__) if m.name not in HIDDEN
]


def listed() -> list[str]:
    """Return the full names on all pages, such as hanme.nn.HANME."""
    pages = sorted(PAGES.glob("*.md"))
    return [name for p in pages for name in re.findall(r"^::: ([\w.]+)$", p.read_text(), re.M)]


def public(package: str) -> list[str]:
    """Return the names in ``__all__``, or the classes that a module without it defines."""
    module = importlib.import_module(package)
    own = [n for n, x in vars(module).items() if inspect.isclass(x) and x.__module__ == package]
    names = getattr(module, "__all__", [n for n in own if n[0] != "_"])
    return [name for name in names if name != "__version__"]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_lists_all_that_is_public(package: str) -> None:
    module, names = importlib.import_module(package), public(package)
    assert names
    found = {name.rpartition(".")[2]: name for name in listed()}
    assert [name for name in names if name not in found] == []
    for name in names:
        home, _, own = found[name].rpartition(".")
        assert getattr(importlib.import_module(home), own) is getattr(module, name)


def test_the_reference_lists_each_name_once_and_every_page_is_in_the_menu() -> None:
    assert len(set(listed())) == len(listed())
    menu = (PAGES.parents[1] / "mkdocs.yml").read_text()
    assert [p.name for p in PAGES.glob("*.md") if f"reference/{p.name}" not in menu] == []

"""Components of installed packages are found by name; what is wrong with one is said in a line."""

import sys
from pathlib import Path

import pytest

from hanme.common.registry import Registry
from hanme.errors import HanmeError


class Part:
    """What the components derive from."""


class Own(Part):
    """One that is built in."""


CODE = """
from test_registry import Part

class Mine(Part):
    pass

class Other:
    pass
"""


def install(folder: Path, name: str, *entries: str) -> None:
    """Write what pip writes: a module, and the entry points of its distribution."""
    (folder / f"{name}.py").write_text(CODE)
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = "\n".join(entries)
    (info / "entry_points.txt").write_text(f"[hanme.small_parts]\n{lines}\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return tmp_path


@pytest.fixture
def registry() -> Registry[type[Part]]:
    return Registry("small part", Part, {"own": Own})


def test_an_installed_class_is_imported_when_it_is_used(
    folder: Path, registry: Registry[type[Part]]
) -> None:
    install(folder, "plugin_a", "mine = plugin_a:Mine")
    assert list(registry) == ["own", "mine"]
    assert "mine" in registry
    assert "plugin_a" not in sys.modules
    assert registry.find("mine").__name__ == "Mine"
    assert "plugin_a" in sys.modules


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("own = plugin_b:Mine", "small part 'own': package plugin_b 1.2 and hanme both provide it"),
        ("x = plugin_b:Other", "small part 'x' of package plugin_b 1.2: plugin_b:Other is not a"),
        ("x = plugin_b:Gone", "package plugin_b 1.2: cannot import plugin_b:Gone .AttributeError"),
        ("x = plugin_gone:X", "package plugin_b 1.2: cannot import plugin_gone:X .ModuleNotFound"),
    ],
)
def test_what_is_wrong_names_the_package(
    folder: Path, registry: Registry[type[Part]], entry: str, message: str
) -> None:
    install(folder, "plugin_b", entry)
    with pytest.raises(HanmeError, match=message) as error:
        registry.find(entry.split()[0])
    assert "\n" not in str(error.value)


def test_two_packages_with_one_name_are_refused(
    folder: Path, registry: Registry[type[Part]]
) -> None:
    install(folder, "plugin_c", "x = plugin_c:Mine")
    install(folder, "plugin_d", "x = plugin_d:Mine")
    with pytest.raises(HanmeError, match=r"package plugin_\w 1.2 and package plugin_\w 1.2 both"):
        registry.find("x")


def test_an_unknown_name_lists_the_known_ones(registry: Registry[type[Part]]) -> None:
    with pytest.raises(HanmeError, match=r"one of own, but got 'x'; .* install its package"):
        registry.find("x")
    registry["x"] = Own
    assert registry.find("x") is Own
    del registry["x"]
    assert "x" not in registry

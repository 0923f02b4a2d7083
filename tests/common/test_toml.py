"""What is written as TOML is what the standard library reads back."""

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanme.common.toml import read_toml, to_toml, toml_key, toml_text
from hanme.errors import HanmeError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)  # which is never equal to itself
    | TEXT
)
LISTS = st.recursive(
    PLAIN, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=5
).filter(lambda value: not isinstance(value, dict))
TABLES = st.recursive(
    st.dictionaries(TEXT, PLAIN | LISTS, max_size=4),
    lambda inner: st.dictionaries(TEXT, inner | PLAIN, max_size=4),
    max_leaves=10,
)


@given(TABLES)
def test_round_trip(values: dict[str, Any]) -> None:
    assert _typed(tomllib.loads(to_toml(values))) == _typed(values)


def _typed(value: Any) -> Any:
    """Values with their types, for 1 == 1.0 == True."""
    if isinstance(value, dict):
        return {key: _typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_typed(inner) for inner in value]
    return type(value), str(value)


def test_it_reads_as_a_person_would_write_it() -> None:
    values = {
        "data": {"name": "IMDB", "source": None},
        "model": {"name": "han", "options": {"metapaths": ["a-b", "a-c"], "dropout": 0.6}},
        "training": {"lr": 5e-4, "fallback": False, "lts": {}},
    }
    assert to_toml(values) == (
        '[data]\nname = "IMDB"\n\n'
        '[model]\nname = "han"\n\n'
        '[model.options]\nmetapaths = [\n  "a-b",\n  "a-c",\n]\ndropout = 0.6\n\n'
        "[training]\nlr = 0.0005\nfallback = false\n\n"
        "[training.lts]\n"
    )


def test_not_a_number_stays_one() -> None:
    assert math.isnan(tomllib.loads(to_toml({"x": math.nan}))["x"])


@pytest.mark.parametrize("values", [{"x": [None]}, {"x": {"y": object()}}, {1: "x"}])
def test_what_toml_cannot_hold(values: dict[str, Any]) -> None:
    with pytest.raises(HanmeError, match=r"^a TOML file cannot hold these values: [^\n]*$"):
        to_toml(values)


def test_none_is_left_out_at_any_depth() -> None:
    values = {"a": None, "b": {"c": None, "d": [{"e": None, "f": 1}]}}
    assert tomllib.loads(to_toml(values)) == {"b": {"d": [{"f": 1}]}}


@given(TEXT, TEXT)
def test_keys_and_strings_alone(key: str, text: str) -> None:
    assert tomllib.loads(f"{toml_key(key)} = {toml_text(text)}") == {key: text}
    assert toml_key("a-b_1") == "a-b_1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[data\n", r"x\.toml: not a TOML file: .*line 1"),
        (b"# \xff", r"x\.toml: not a TOML file: .*utf-8.* position 2"),
        (b"x = " + 9999 * b"[", r"x\.toml: not a TOML file: .*(recursion|nested)"),
    ],
)
def test_a_file_that_is_not_toml(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(HanmeError, match=message):
        read_toml(path)
    with pytest.raises(HanmeError, match="cannot be read"):
        read_toml(tmp_path)


def test_a_long_line_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser needs quadratic time for a dotted key: half a minute for 100,000 parts."""
    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("parsed"))
    path = tmp_path / "x.toml"
    path.write_text("x = 1\n" + ".".join(["a"] * 100_000) + " = 1")
    with pytest.raises(HanmeError, match=r"line 2: more than 20000 characters"):
        read_toml(path)

"""Counts as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanme.common.text import csv_cell, duration, from_csv_cell, plural, short, singular, spoken


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"), (12345, "12,345"), (999_999, "999,999"), (1_000_000, "1.0 M"),
        (9_949_999, "9.9 M"), (9_950_000, "10 M"), (394_183_201, "394 M"),
        (999_400_000, "999 M"), (999_600_000, "1.0 G"), (4 * 10**12, "4.0 T"),
        (2**62, "4.6 E"), (5 * 10**21, "5,000 E"),
    ],
)  # fmt: skip
def test_a_count_can_be_read(count: int, text: str) -> None:
    assert short(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.034, "0.03 s"),
        (1.24, "1.2 s"),
        (25.2, "25 s"),
        (119, "119 s"),
        (180, "3 min"),
        (7200, "2 h"),
    ],
)
def test_times_can_be_read(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("many", "one"),
    [
        ("weaknesses", "weakness"), ("boxes", "box"), ("branches", "branch"), ("dishes", "dish"),
        ("diseases", "disease"), ("countries", "country"), ("films", "film"), ("people", "person"),
        ("classes", "class"),
    ],
)  # fmt: skip
def test_singular_and_plural(many: str, one: str) -> None:
    assert singular(many) == singular(one) == one
    assert plural(one) == many


@pytest.mark.parametrize(
    ("name", "words"),
    [("MonthlyCharges", "monthly charges"), ("nba_team", "nba team"), ("HR", "HR"), ("_", "_")],
)
def test_spoken(name: str, words: str) -> None:
    assert spoken(name) == words


STARTS = st.sampled_from(["", "'", "''", "=", "'=", "'+", "-", "'-1", "\t", " '="])


@given(start=STARTS, text=st.text())
def test_a_text_survives_a_csv_cell(start: str, text: str) -> None:
    cell = csv_cell(start + text)
    assert from_csv_cell(cell) == start + text
    assert cell == start + text or cell == f"'{start}{text}"
    assert cell[:1] not in ("=", "@", "\t", "\r")

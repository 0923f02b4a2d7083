"""Options are checked against the signature of the function that takes them."""

from typing import Any

import pytest

from hanme.common.options import check_options
from hanme.errors import HanmeError


def make(graph: object, size: int, share: float = 0.5, names: list[str] | None = None) -> None: ...


class Open:
    def __init__(self, heads: int = 8, **more: Any) -> None: ...


def test_defaults_are_filled_in() -> None:
    found = check_options("make", make, {"size": 3, "share": 1}, own=["graph"])
    assert found == {"size": 3, "share": 1, "names": None}
    assert check_options("open", Open, {"other": 1}) == {"heads": 8, "other": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sise": 3}, "^make has no option 'sise'; it has size, share, names$"),
        ({"size": 3, "graph": 1}, "^make has no option 'graph'"),
        ({}, "^make: size is missing$"),
        ({"size": "3"}, "^make: size: .*integer, but got '3'$"),
        ({"size": True}, "^make: size: .*integer, but got True$"),
        ({"size": 1, "share": "x"}, "^make: share: .*number, but got 'x'$"),
        ({"size": 1, "names": [1]}, r"^make: names: .*string, but got \[1\]$"),
    ],
)
def test_mistakes_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HanmeError, match=message):
        check_options("make", make, options, own=["graph"])

"""List the licences of the packages in the lock files, as their own metadata states them.

The status is 1 if a package states none, or one that asks for more than to be named.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

LOCKS = Path(__file__).parents[1].glob("requirements*.lock")
PERMISSIVE = r"\b(MIT|BSD|Apache|ISC|PSF|Python|MPL|Mozilla|HPND|Unlicense|zlib|0BSD|CC0|Public)"


def names() -> list[str]:
    """Return the packages of the lock files, without their versions."""
    text = "".join(lock.read_text() for lock in LOCKS)
    found = (re.match(r"([\w.-]+)==", line) for line in text.splitlines())
    return sorted({match[1].lower() for match in found if match})


def licence(name: str) -> str:
    """Return what a package states: an expression, classifiers, or the first line of a text."""
    about = metadata(name)
    classifiers = about.get_all("Classifier") or []
    stated = [c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License ::")]
    expression, own = (about.get_all(key) or [""] for key in ("License-Expression", "License"))
    text = expression[0] or ", ".join(stated) or own[0]
    return text.strip().splitlines()[0][:80] if text.strip() else "none stated"


def main() -> int:
    """Print a line per package."""
    odd = []
    for name in names():
        try:
            found = licence(name)
        except PackageNotFoundError:  # for another system or version of Python
            continue
        print(f"{name}: {found}")
        if not re.search(PERMISSIVE, found, re.IGNORECASE):
            odd.append(name)
    print(f"to look at: {', '.join(odd)}" if odd else "all permissive")
    return 1 if odd else 0


if __name__ == "__main__":
    sys.exit(main())

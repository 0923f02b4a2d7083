"""Write the packages that apt knows as tables to try ``hanme train`` on: 64,000 in 58 sections.

apt-cache dumpavail > available.txt
python benchmarks/debian.py available.txt debian
hanme init debian --label section
hanme train debian
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

COLUMNS = ["Section", "Maintainer", "Architecture", "Priority", "Installed-Size", "Description"]


def records(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each package; a line that begins with a space goes on with the last."""
    for part in text.split("\n\n"):
        lines = part.replace("\n ", " ").splitlines()
        if lines:
            yield {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def needed(depends: str) -> set[str]:
    """Return the names of packages in ``a (>= 1), b | c``."""
    return {re.sub(r"[ :(].*", "", name.strip()) for name in re.split(r"[,|]", depends)} - {""}


def main() -> None:
    source, folder = map(Path, sys.argv[1:])
    found: dict[str, dict[str, str]] = {}
    for record in records(source.read_text("utf-8")):
        found.setdefault(record["Package"], record)
    folder.mkdir(parents=True)
    with (folder / "packages.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["package", "tags", *(column.lower() for column in COLUMNS)])
        for name, record in found.items():
            tags = "; ".join(tag.strip() for tag in record.get("Tag", "").split(",") if tag.strip())
            writer.writerow([name, tags, *(record.get(column, "") for column in COLUMNS)])
    with (folder / "depends.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["package", "depends"])
        for name, record in found.items():
            others = sorted((needed(record.get("Depends", "")) & found.keys()) - {name})
            writer.writerows([name, other] for other in others)


if __name__ == "__main__":
    main()

"""Make a table of 64,000 software packages in 58 sections, to try ``hanme train`` on.

    python benchmarks/packages.py packages
    hanme init packages --label section
    hanme train packages

Sections have maintainers, tags (600 of them: hubs), dependencies and words of their own, and share
most of them.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

ROWS, SECTIONS, MAINTAINERS, TAGS, WORDS = 64_000, 58, 4_000, 600, 3_000


def rows(seed: int = 0) -> list[list[object]]:
    draw = np.random.default_rng(seed)
    section = draw.choice(SECTIONS, ROWS, p=draw.dirichlet(np.full(SECTIONS, 0.6)))
    own_words = [draw.choice(WORDS, 60, replace=False) for _ in range(SECTIONS)]
    own_people = [draw.choice(MAINTAINERS, 90, replace=False) for _ in range(SECTIONS)]
    own_tags = [draw.choice(TAGS, 25, replace=False) for _ in range(SECTIONS)]
    members = [np.flatnonzero(section == s) for s in range(SECTIONS)]
    often = draw.zipf(1.6, ROWS).clip(max=4000)
    reach = np.cumsum(often / often.sum())

    def mostly(own: np.ndarray, share: float, every: int) -> int:
        return int(own[draw.integers(len(own))] if draw.random() < share else draw.integers(every))

    def needed(s: int) -> int:
        if draw.random() < 0.4:
            return int(members[s][draw.integers(len(members[s]))])
        return min(int(np.searchsorted(reach, draw.random())), ROWS - 1)

    def word(s: int) -> int:
        return int(
            own_words[s][draw.integers(60)] if draw.random() < 0.25 else draw.zipf(1.3) % WORDS
        )

    found: list[list[object]] = []
    for i, s in enumerate(section):
        tags = {mostly(own_tags[s], 0.5, TAGS) for _ in range(draw.integers(1, 6))}
        needs = {needed(s) for _ in range(draw.integers(0, 7))}
        found.append(
            [
                f"pkg{i}",
                f"section{s}" if draw.random() < 0.97 else "",
                f"maintainer{mostly(own_people[s], 0.6, MAINTAINERS)}",
                "|".join(f"tag{tag}" for tag in sorted(tags)),
                "|".join(f"pkg{other}" for other in sorted(needs)),
                " ".join(f"w{word(s)}" for _ in range(draw.integers(4, 14))),
                int(draw.lognormal(8, 2)),
            ]
        )
    return found


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "packages")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "packages.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["package", "section", "maintainer", "tags", "depends", "words", "size"])
        table.writerows(rows())


if __name__ == "__main__":
    main()

"""Draw cases and count how they end: ``make fuzz N=5000 SEEDS=1,2,3``.

Each seed draws its share of the cases. The status is 1 if there was a defect.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from fuzz.cases import draw_case
from fuzz.harness import Tally
from fuzz.inputs import Inputs

MEMORY = 12 * 2**30
"""What the process may take: a case that asks for more is refused as on a small machine."""


def fuzz(count: int, seeds: list[int], folder: Path) -> dict[str, Tally]:
    """Run cases; return counts by kind."""
    inputs = Inputs.make(folder / "sound")
    tallies: dict[str, Tally] = defaultdict(Tally)
    for number in range(count):
        seed = seeds[number % len(seeds)] * 1_000_000 + number
        place = folder / "case"
        case = draw_case(seed, inputs, place)
        found = case.run()
        kind = case.name.partition(",")[0]
        tallies[kind].add(case.name, found)
        if found.kind == "defect":
            print(f"DEFECT {case.name}\n{found.said}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
    return tallies


def main() -> None:
    """Run as many cases as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seeds", default="1", help="separated by commas")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # some cases name files of the folder they are run in
        os.environ |= {"HANME_CACHE": f"{folder}/cache", "HANME_HGB_URL": "https://127.0.0.1:9/"}
        os.environ.pop("HANME_DATA", None)
        tallies = fuzz(arguments.cases, [int(s) for s in arguments.seeds.split(",")], Path(folder))
    for kind, tally in sorted(tallies.items()):
        print(f"{kind}: {tally}")
    defects = sum(tally.counts["defect"] for tally in tallies.values())
    print(f"{arguments.cases} cases, {defects} defects")
    sys.exit(1 if defects else 0)


if __name__ == "__main__":
    main()

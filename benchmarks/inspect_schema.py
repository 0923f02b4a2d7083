"""How long ``hanme inspect`` takes on a graph of 30 node types and 300 relations.

python benchmarks/inspect_schema.py

Writes tables of 2,000 nodes of each type and 5,000 links of each relation to a temporary folder,
and runs the command twice: the second time the graph is in the cache.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def write(folder: Path, types: int = 30, relations: int = 300, nodes: int = 2000) -> None:
    """Write the tables and a graph.toml; each type has a relation with the target at least."""
    draw = random.Random(1)
    lines = ['target = "t0"']
    for kind in range(types):
        labels = ["label" if kind == 0 else "size"]
        values = [draw.choice("abc") if kind == 0 else str(draw.random()) for _ in range(nodes)]
        rows = [",".join(["id", *labels]), *(f"{i},{value}" for i, value in enumerate(values))]
        (folder / f"t{kind}.csv").write_text("\n".join(rows) + "\n")
        lines += [f"[nodes.t{kind}]", f'table = "t{kind}.csv"', 'id = "id"']
        lines += ['label = "label"'] if kind == 0 else ['features = {size = "number"}']
    for relation in range(relations):
        ends = (
            (0, relation % types)
            if relation < types
            else (draw.randrange(types), draw.randrange(types))
        )
        pairs = {(draw.randrange(nodes), draw.randrange(nodes)) for _ in range(5000)}
        rows = ["source,target", *(f"{a},{b}" for a, b in sorted(pairs))]
        (folder / f"r{relation}.csv").write_text("\n".join(rows) + "\n")
        lines += [f"[relations.r{relation}]", f'table = "r{relation}.csv"']
        for side, end in zip(("source", "target"), ends, strict=True):
            lines.append(f'{side} = {{type = "t{end}", column = "{side}"}}')
    (folder / "graph.toml").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Write, inspect twice, print the seconds."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "schema"
        folder.mkdir()
        write(folder)
        environment = os.environ | {"HANME_CACHE": str(Path(place) / "cache")}
        command = [sys.executable, "-c", "from hanme.cli import main; main()", "inspect"]
        for which in ("first", "again"):
            began = time.perf_counter()
            done = subprocess.run(
                [*command, str(folder)], env=environment, check=True, capture_output=True, text=True
            )
            seconds = time.perf_counter() - began
            print(f"{which}: {seconds:.1f} s, {len(done.stdout.splitlines())} lines", flush=True)


if __name__ == "__main__":
    main()

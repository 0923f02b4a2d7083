"""Measure the server: many clients at once, memory over many explanations, and a large graph.

    python benchmarks/serve.py load RUN            # 50 clients for 30 seconds
    python benchmarks/serve.py memory RUN          # 10,000 explanations
    python benchmarks/serve.py large               # a graph of a million rows

Each starts ``hanme serve`` on a free port in a process of its own and prints rows of a table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from playwright.async_api import async_playwright

CLIENTS, SECONDS, EXPLANATIONS = 50, 30, 10_000
ROWS = 1_000_000
TOKEN = "a-token-of-the-benchmark"
Times = dict[str, list[float]]
WORDS = ("amber", "bitter", "broken", "crimson", "distant", "empty", "golden", "hidden", "lonely")


@contextmanager
def serving(*runs: str) -> Iterator[int]:
    """Start the server, yield its port, and stop it."""
    code = "from hanme.cli import main; main()"
    with tempfile.NamedTemporaryFile("w") as token:
        token.write(TOKEN)
        token.flush()
        options = ["--port", "0", "--token-file", token.name]
        command = [sys.executable, "-c", code, "serve", *options, *runs]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().split(":")[-1].strip("/\n"))
        finally:
            process.terminate()
            process.wait()


class Client:
    """One connection that asks one thing after the other."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, path: str, body: object = None) -> tuple[float, bytes]:
        """Return the seconds that an answer took, and the answer; any but 200 is an error."""
        sent = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Authorization: Bearer {TOKEN}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
        begin = time.perf_counter()
        self.writer.write(head.encode() + sent)
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        answer = await self.reader.readexactly(int(headers["content-length"]))
        taken = time.perf_counter() - begin
        if " 200 " not in lines[0]:
            raise RuntimeError(f"{path}: {lines[0]} {answer!r}")
        return taken, answer


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def report(found: Times) -> None:
    print(
        "| request | number | median ms | p95 ms | most ms |\n| --- | ---: | ---: | ---: | ---: |"
    )
    for what, seconds in found.items():
        numbers = [1000 * percentile(seconds, share) for share in (0.5, 0.95, 1.0)]
        print(f"| {what} | {len(seconds):,} | " + " | ".join(f"{n:.0f}" for n in numbers) + " |")


async def linked(client: Client, run: str, target: str) -> dict[str, list[int]]:
    """Return a link of a new row: to the first node of a type that targets are linked to."""
    relations = json.loads((await client.ask(f"{run}/graph"))[1])["relations"]
    return {next(one["relation"] for one in relations if one["source"] == target): [0]}


async def first_run(client: Client) -> tuple[str, int, list[str]]:
    """Return the name of the first run, how many nodes it has, and some of their names."""
    (run, *_) = json.loads((await client.ask("/api/v1/runs"))[1])["runs"]
    path = f"/api/v1/runs/{run['name']}/predictions?limit=500"
    rows = json.loads((await client.ask(path))[1])["rows"]
    return f"/api/v1/runs/{run['name']}", run["nodes"], [row["name"] for row in rows]


async def use(
    port: int, seed: int, pause: float, known: tuple[str, int, list[str]], found: Times
) -> None:
    """Send the requests of a person at the page, one after another, until the time is over."""
    rng, (run, nodes, names) = random.Random(seed), known
    until = time.perf_counter() + SECONDS
    async with Client(port) as client:
        target = json.loads((await client.ask("/api/v1/runs"))[1])["runs"][0]["target"]
        links = await linked(client, run, target)
        while time.perf_counter() < until:
            name, node = rng.choice(names), rng.randrange(nodes)
            order = rng.choice(("number", "uncertain", "surprising"))
            for what, path in (
                ("search", f"{run}/search?q={quote(name[:6])}"),
                ("predictions", f"{run}/predictions?sort={order}&offset={node // 2}&limit=50"),
                ("prediction", f"{run}/predictions/{node}"),
                ("explanation", f"{run}/explanations/{node}?instances=20"),
                ("what to review", f"{run}/reviews?limit=20"),
                ("single changes", f"{run}/changes/{node}"),
                ("new row", f"{run}/rows"),
                ("listing", "/api/v1/listing"),
            ):
                body = {"rows": [{"links": links}]} if what == "new row" else None
                found.setdefault(what, []).append((await client.ask(path, body))[0])
                await asyncio.sleep(rng.random() * 2 * pause)


async def load(port: int, pause: float) -> None:
    found: Times = {}
    async with Client(port) as client:
        known = await first_run(client)
    await asyncio.gather(*(use(port, seed, pause, known, found) for seed in range(CLIENTS)))
    report(found)
    total = sum(map(len, found.values()))
    print(f"{total:,} requests, {total / SECONDS:.0f} a second, none lost")


async def memory(port: int) -> None:
    taken = 0

    async def explain(share: int) -> None:
        nonlocal taken
        async with Client(port) as client:
            run, nodes, _ = await first_run(client)
            for i in range(share):
                await client.ask(f"{run}/explanations/{(i * 7 + share) % nodes}?instances=20")
                taken += 1
                if taken % 1000 == 0 or taken == 1:
                    health = json.loads((await client.ask("/api/v1/health"))[1])
                    print(f"| {taken:,} | {health['memory_mb']:.0f} |", flush=True)

    print("| explanations | memory MB |\n| ---: | ---: |")
    await asyncio.gather(*(explain(EXPLANATIONS // 4) for _ in range(4)))


def large_run(folder: Path) -> Path:
    """Write a table of a million rows and train the linear model on it."""
    rng = random.Random(1)
    with (folder / "films.csv").open("w") as file:
        file.write("id,title,year,person,genre\n")
        for i in range(ROWS):
            genre = rng.randrange(3)
            title = f"The {rng.choice(WORDS)} {rng.choice(WORDS)} {i}"
            label = f"g{genre}" if i % 100 == 0 else ""
            person = 3 * rng.randrange(60_000) + genre
            file.write(f"f{i},{title},{rng.randrange(1950, 2025)},p{person},{label}\n")
    (folder / "graph.toml").write_text(
        'target = "film"\n[nodes.film]\ntable = "films.csv"\nid = "id"\nname = "title"\n'
        'label = "genre"\nfeatures = {year = "number"}\n'
        '[relations]\nperson = {columns = ["person"]}\n'
    )
    code = "from hanme.cli import main; main()"
    train = [sys.executable, "-c", code, "train", str(folder), "--model", "linear", "--out"]
    subprocess.run([*train, str(folder / "run")], check=True, stdout=subprocess.DEVNULL)
    return folder / "run"


async def first_views(port: int) -> list[float]:
    """Return the seconds until the overview stands in a browser that has never been here."""
    taken = []
    async with async_playwright() as driver:
        chromium = await driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for _ in range(10):
            page = await chromium.new_page()
            begin = time.perf_counter()
            await page.goto(f"http://127.0.0.1:{port}/?token={TOKEN}")
            await page.get_by_role("heading", name="How good is it?").wait_for()
            taken.append(time.perf_counter() - begin)
            await page.close()
        await chromium.close()
    return taken


async def large(port: int) -> None:
    found: Times = {"search": [], "first view": await first_views(port)}
    async with Client(port) as client:
        run, _, names = await first_run(client)
        for name in names[:60]:
            typed = name[:5] + name[6:]  # a letter is missing
            for text in (name, name[:8], typed):
                found["search"].append((await client.ask(f"{run}/search?q={quote(text)}"))[0])
    report(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["load", "memory", "large"])
    parser.add_argument("run", nargs="?")
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between clicks")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = str(large_run(Path(folder))) if given.what == "large" else given.run
        with serving(run) as port:
            if given.what == "load":
                asyncio.run(load(port, given.pause))
            else:
                asyncio.run(memory(port) if given.what == "memory" else large(port))


if __name__ == "__main__":
    main()

"""Small sound inputs that the fuzzer damages: tables, a store, runs, an archive, and so on."""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fuzz.api import Api
from fuzz.harness import run
from fuzz.stores import said, uses
from graphs import FILMS_TOML as GRAPH
from hanme.data import planted
from hanme.runs import Run, train
from hanme.training import Epoch
from hgb_layout import write_imdb

RESUME = [
    "-m", "film-person-film", "--hidden", "8", "--heads", "1", "--epochs", "15", "--patience", "50",
]  # fmt: skip
"""The options of the runs."""


@dataclass(frozen=True)
class Inputs:
    """Where the sound inputs are.

    Args:
        folder: A folder of one's own.
        tables: A ``graph.toml`` and its tables.
        finished: A finished run on them.
        begun: A run on them that was interrupted after 12 epochs.
        store: The same graph, stored.
        archive: A benchmark graph.
        config: A configuration file.
    """

    folder: Path
    tables: Path
    finished: Path
    begun: Path
    store: Path
    archive: Path
    config: Path

    @classmethod
    def make(cls, folder: Path) -> Inputs:
        """Write them."""
        tables = write_tables(folder / "tables")
        for command in (
            ["train", str(tables), *RESUME, "--out", str(folder / "finished")],
            ["inspect", str(tables), "--store", str(folder / "store")],
            ["predict", str(folder / "finished"), "--json"],
        ):
            found = run(command)
            assert found.kind == "accepted", found
        (folder / "expected.json").write_text(found.out)
        store = folder / "store"
        before = {
            name: said(run(command).out, store)
            for name, command in uses(store, folder / "finished").items()
        }
        (folder / "stored.json").write_text(json.dumps(before))
        with suppress(KeyboardInterrupt):
            train(Run.open(folder / "finished").config, folder / "begun", on_epoch=_interrupt)
        hgb = write_imdb(planted(movies=60, seed=1), folder / "IMDB")
        archive = folder / "IMDB.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
            for path in sorted(hgb.iterdir()):
                written.write(path, f"IMDB/{path.name}")
        settings = folder / "config.toml"
        settings.write_text(
            '[data]\nname = "planted"\noptions = {movies = 60}\n[model]\nname = "hanme"\n'
            '[model.options]\nmetapaths = ["movie-director-movie"]\nhidden_channels = 8\n'
            'heads = 2\n[training]\nrecipe = "paper"\nepochs = 1\n'
        )
        runs = (folder / "finished", folder / "begun")
        return cls(folder, tables, *runs, store, archive, settings)

    @cached_property
    def api(self) -> Api:
        """The API of the finished run."""
        return Api([self.finished])

    def copy(self, name: str, to: Path) -> Path:
        """Copy one of them, to be damaged."""
        source: Path = getattr(self, name)
        to.parent.mkdir(parents=True, exist_ok=True)
        return Path((shutil.copytree if source.is_dir() else shutil.copy)(source, to))


def _interrupt(epoch: Epoch) -> None:
    if epoch.epoch == 12:
        raise KeyboardInterrupt


def write_tables(folder: Path) -> Path:
    """Write a graph of 40 films."""
    draw = random.Random(1)
    folder.mkdir(parents=True)
    films = ["id,title,genre,year,country,tags,plot"]
    roles = ["film,person"]
    for i in range(40):
        genre = ("Drama", "Comedy")[i % 2] if i < 36 else ""
        year = draw.choice(["", str(1990 + draw.randrange(30))])
        words = " ".join(draw.choices(["town", "letter", "bridge", "song"], k=3))
        country, tags = draw.choice(["France", "Japan", ""]), draw.choice(["a|b", "b", "c|a", ""])
        films.append(f'f{i},"Film, {i}",{genre},{year},{country},{tags},{words}')
        roles += [f"f{i},p{(i % 2) * 4 + draw.randrange(4)}" for _ in range(2)]
    (folder / "films.csv").write_text("\n".join(films) + "\n")
    (folder / "people.csv").write_text("id,name\n" + "".join(f"p{i},P{i}\n" for i in range(8)))
    (folder / "roles.csv").write_text("\n".join(dict.fromkeys(roles)) + "\n")
    (folder / "graph.toml").write_text(GRAPH)
    return folder


def without_seal(path: Path) -> None:
    """Remove the checksum of a JSON file, so that what it says is looked at."""
    values = json.loads(path.read_text())
    values.pop("sha256", None)
    path.write_text(json.dumps(values))

"""Draw cases: inputs of each kind, damaged in ways that know their structure."""

from __future__ import annotations

import json
import math
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import tomli_w

from fuzz.api import api_request
from fuzz.damage import (
    VALUES,
    WORDS,
    damage_bytes,
    damage_csv,
    damage_tensors,
    damage_tree,
    to_json,
    without_none,
)
from fuzz.harness import Case
from fuzz.inputs import RESUME, Inputs, without_seal
from fuzz.stores import stored

Maker = Callable[[random.Random, Inputs, Path], Case]


def draw_case(seed: int, inputs: Inputs, folder: Path) -> Case:
    """Make the case of a seed in a folder of its own."""
    draw = random.Random(seed)
    kind = draw.choice(list(KINDS))
    case = KINDS[kind](draw, inputs, folder)
    case.name = f"{kind}, seed {seed}: {case.commands}"
    return case


def finite(outs: list[str]) -> str:
    """Say if a prediction among rows of JSON is no probability."""
    for row in json.loads(outs[-1]):
        for column, value in row.items():
            if column.startswith("p_") and not (
                isinstance(value, float) and math.isfinite(value) and 0 <= value <= 1
            ):
                return f"{column} = {value}"
    return ""


def same_as(path: Path) -> Callable[[list[str]], str]:
    """Say if predictions differ from those of the sound run."""

    def check(outs: list[str]) -> str:
        expected = json.loads((path / "expected.json").read_text())
        return "" if json.loads(outs[-1]) == expected else "other predictions than the sound run"

    return check


def tables(draw: random.Random, inputs: Inputs, folder: Path) -> Case:
    """Damage one table or several."""
    copied = inputs.copy("tables", folder / "tables")
    for name in draw.sample(["films.csv", "people.csv", "roles.csv"], draw.choice([1, 1, 2])):
        path = copied / name
        if draw.random() < 0.2:
            path = _in_another_format(draw, path)
        if path.suffix != ".csv" or draw.random() < 0.3:
            path.write_bytes(damage_bytes(draw, path.read_bytes()))
        else:
            path.write_bytes(damage_csv(draw, path.read_text()))
    return _use_tables(draw, copied, folder)


def _in_another_format(draw: random.Random, path: Path) -> Path:
    """Write a table in another format, in which the graph.toml then names it."""
    how = {
        "csv.gz": "csv, COMPRESSION gzip",
        "json": "json, ARRAY true",
        "jsonl.gz": "json, COMPRESSION gzip",
        "parquet": "parquet",
    }
    ending = draw.choice(list(how))
    written = path.with_suffix(f".{ending}")
    rows = f"FROM read_csv('{path}', all_varchar = true)"
    duckdb.sql(f"COPY ({rows}) TO '{written}' (FORMAT {how[ending]})")
    path.unlink()
    config = path.parent / "graph.toml"
    config.write_text(config.read_text().replace(path.name, written.name))
    return written


def graph_toml(draw: random.Random, inputs: Inputs, folder: Path) -> Case:
    """Damage a graph.toml as a tree or as a text."""
    import tomllib

    copied = inputs.copy("tables", folder / "tables")
    path = copied / "graph.toml"
    if draw.random() < 0.3:
        path.write_bytes(damage_bytes(draw, path.read_bytes()))
    else:
        values = damage_tree(draw, tomllib.loads(path.read_text()))
        path.write_text(tomli_w.dumps(without_none(values)), encoding="utf-8", errors="replace")
    return _use_tables(draw, copied, folder)


def _use_tables(draw: random.Random, tables: Path, folder: Path) -> Case:
    match draw.randrange(6):
        case 0:
            out, quick = str(folder / "run"), ["--epochs", "1", "--recipe", "paper"]
            train = ["train", str(tables), "--out", out, *quick, "--hidden", "8", "--heads", "1"]
            return Case("", [train, ["predict", out, "--json"]], finite)
        case 1:
            (tables / "graph.toml").unlink()
            return Case("", [["init", str(tables)], ["inspect", str(tables), "--hops", "2"]])
        case _:
            return Case("", [["inspect", str(tables), "--hops", "2", "--json"]])


def grown(draw: random.Random, inputs: Inputs, folder: Path) -> Case:
    """Predict with a sound run on damaged tables."""
    case = draw.choice([tables, graph_toml])(draw, inputs, folder)
    del case
    if not (folder / "tables" / "graph.toml").exists():
        (folder / "tables" / "graph.toml").write_text((inputs.tables / "graph.toml").read_text())
    predict = ["predict", str(inputs.finished), "--graph", str(folder / "tables"), "--json"]
    return Case("", [predict], finite)


def finished_run(draw: random.Random, inputs: Inputs, folder: Path) -> Case:
    """Damage a file of a finished run; whatever is accepted predicts as before."""
    run = inputs.copy("finished", folder / "run")
    sealed = _damage_run(draw, run)
    command = draw.choice(
        [["predict", str(run), "--json"]] * 3
        + [["evaluate", str(run), "--json"], ["explain", str(run), "f1", "--json"]]
    )
    if command[0] != "predict":
        return Case("", [command])
    return Case("", [command], same_as(inputs.folder) if sealed else finite)


def begun_run(draw: random.Random, inputs: Inputs, folder: Path) -> Case:
    """Damage a file of an interrupted run; if it can be resumed, it ends as if undisturbed."""
    run = inputs.copy("begun", folder / "run")
    sealed = _damage_run(draw, run)
    resume = ["train", str(inputs.tables), *RESUME, "--resume", "--out", str(run)]
    predict = ["predict", str(run), "--json"]
    return Case("", [resume, predict], same_as(inputs.folder) if sealed else finite)


def _damage_run(draw: random.Random, run: Path) -> bool:
    """Damage one file that is read again; return whether its checksum has to notice."""
    read = [path for path in sorted(run.iterdir()) if path.suffix in (".json", ".jsonl")]
    read += sorted(run.glob("*.safetensors"))
    path = draw.choice(read)
    if path.suffix == ".safetensors" and draw.random() < 0.5:
        damage_tensors(draw, path)
        return False
    if path.suffix == ".json" and draw.random() < 0.6:
        sealed = draw.random() < 0.5
        if not sealed:
            without_seal(path)
        values = damage_tree(draw, json.loads(path.read_text()))
        path.write_text(to_json(values))
        return sealed and "sha256" in values
    if draw.random() < 0.1:
        path.unlink()
        return False
    path.write_bytes(damage_bytes(draw, path.read_bytes()))
    return b'"sha256"' in path.read_bytes() and path.suffix != ".jsonl"


def weights(draw: random.Random, inputs: Inputs, folder: Path) -> Case:
    """Damage weights so that the file is of the right form."""
    run = inputs.copy("finished", folder / "run")
    damage_tensors(draw, run / "model.safetensors")
    return Case("", [["predict", str(run), "--json"]], finite)


def archives(draw: random.Random, inputs: Inputs, folder: Path) -> Case:
    """Damage an archive of the benchmark, or a file in it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "IMDB.zip"
    if draw.random() < 0.4:
        path.write_bytes(damage_bytes(draw, inputs.archive.read_bytes()))
    else:
        with zipfile.ZipFile(inputs.archive) as old, zipfile.ZipFile(path, "w") as new:
            names = old.namelist()
            chosen = draw.choice(names)
            for name in names:
                content = old.read(name)
                if name == chosen:
                    content = damage_bytes(draw, content)
                    name = draw.choice([name] * 8 + [f"../{name}", f"/{name}", name.upper()])
                new.writestr(name, content)
                if draw.random() < 0.03:
                    new.writestr(f"other/{Path(name).name}", content)
    return Case("", [["inspect", "IMDB", "--data", str(path), "--hops", "2", "--json"]])


def configurations(draw: random.Random, inputs: Inputs, folder: Path) -> Case:
    """Damage a configuration file."""
    import tomllib

    path = inputs.copy("config", folder / "config.toml")
    if draw.random() < 0.3:
        path.write_bytes(damage_bytes(draw, path.read_bytes()))
    else:
        values = _no_giants(damage_tree(draw, tomllib.loads(path.read_text())))
        path.write_text(tomli_w.dumps(without_none(values)), encoding="utf-8", errors="replace")
    out = str(folder / "run")
    quick = ["--epochs", "1", "--set", "data.options.movies=60"]
    train = ["train", "--config", str(path), "--out", out, *quick]
    return Case("", [train, ["predict", out, "--json"]], finite)


def _no_giants(values: Any) -> Any:
    """Bound sizes: what takes all of the memory or a day is meant, not wrong."""
    if isinstance(values, dict):
        return {key: _no_giants(value) for key, value in values.items()}
    big = isinstance(values, int) and not isinstance(values, bool) and 10**4 < values < 10**12
    return 10**20 if big else values


def options(draw: random.Random, inputs: Inputs, folder: Path) -> Case:
    """Give options odd values."""
    run, graph = str(inputs.finished), str(inputs.tables)
    start, more = draw.choice(
        [
            (["inspect", draw.choice(["planted", graph])], INSPECT),
            (["train", draw.choice(["planted", graph]), "--out", str(folder / "run")], TRAIN),
            (["predict", run], PREDICT),
            (["explain", run, draw.choice(["f1", "f2", *WORDS])], EXPLAIN),
            (["evaluate", run], ["--data", "--allow"]),
            (["init", str(folder)], ["--target", "--label"]),
            (["tune", "hanme-direct", "planted", "--out", str(folder / "t.toml")], TUNE),
        ]
    )
    command = list(start)
    for option in draw.sample(more, min(len(more), draw.choice([1, 1, 2, 3]))):
        command += [option, _odd(draw, option)]
    if start[0] == "train":
        command += ["--epochs", "1", "--heads", "1"]
        command += ["--set", "data.options.movies=60"] if start[1] == "planted" else []
    if start[0] == "tune":
        command += ["--trials", "1", "--epochs", "1", "--set", "data.options.movies=60"]
    return Case("", [[text.replace("\0", "") for text in command]])


INSPECT = ["--hops", "--hidden", "--heads", "--seed", "--features", "--data", "--set", "--allow"]
TRAIN = [
    "--model", "--encoder", "-m", "--hidden", "--heads", "--dropout", "--gamma", "--values", "--lr",
    "--backend", "--set", "--lts", "--lts-start", "--lts-until", "--patience", "--weight-decay",
    "--select", "--decide", "--recipe", "--seed", "--data", "--features", "--config",
]  # fmt: skip
PREDICT = ["--node", "--graph", "--out", "--data", "--allow"]
EXPLAIN = ["--out", "--reasons", "--instances", "--label", "--by", "--data", "--graph", "--allow"]
TUNE = ["--seeds", "--seed", "--config-folder", "--set", "--data"]
FIELDS = [
    "x", "heads", "hidden_channels", "dropout", "gamma", "encoder", "metapaths", "training.lr",
    "training.seed", "training.lts", "training.lts.pace", "data.name", "data.options.movies",
    "data.features", "model.name", "training", ".", "a.b.c.d", "training.every", "training.lr",
]  # fmt: skip


def _odd(draw: random.Random, option: str) -> str:
    value = _no_giants(draw.choice(VALUES))
    usual = ["-5", "1e300", "0", "8", "x", "planted", "1", "all"]
    text = draw.choice([*usual, *WORDS, json.dumps(value)])
    if option == "--set":
        return f"{draw.choice(FIELDS)}={text}"
    return text if text != "99999999999999999999" or option != "--seeds" else "-1"


KINDS: dict[str, Maker] = {
    "tables": tables,
    "graph.toml": graph_toml,
    "grown tables": grown,
    "finished run": finished_run,
    "begun run": begun_run,
    "weights": weights,
    "archive": archives,
    "configuration": configurations,
    "options": options,
    "store": stored,
    "API request": api_request,
}

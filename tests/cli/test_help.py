"""Help states the defaults that commands use, and inspect shows the graph that train loads."""

import json
import re
import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from commands import hanme
from hanme.cli import COMMANDS, Command
from hanme.cli.options import FIELDS, option_names
from hanme.data import planted
from hanme.runs import Run, load_graph, resolve
from hgb_layout import write_imdb

FLAGS = [(field, option_names(field)[0]) for field in " ".join(FIELDS["train"].values()).split()]


def stated_defaults(command: str) -> dict[str, str]:
    """Return the defaults in a command's help by option, without those of the paper's recipe."""
    text = hanme(command, "--help", COLUMNS="400").stdout
    found = re.findall(r"(--[a-z-]+)(?: .*)?\[default: \((.*?)(?:; paper: .*?)?\)\]", text)
    return dict(found)


def look_up(config: Any, field: str) -> Any:
    """Return the value of a field of a resolved configuration."""
    return reduce(
        lambda found, name: found[name] if isinstance(found, dict) else getattr(found, name),
        field.split("."),
        config,
    )


def test_train_states_the_defaults_that_it_resolves() -> None:
    stated = stated_defaults("train")
    config, _ = resolve({"data": {"name": "planted"}})
    assert config.training.lts is None
    assert stated.pop("--lts") == "none"
    assert stated["--epochs"] == "100"  # stated as 200 before
    lts, _ = resolve({"data": {"name": "planted"}, "training": {"lts": {}}})
    of_encoders = ("--gamma", "--values")  # filled in by the encoder
    checked = 0
    for field, flag in FLAGS:
        if flag in stated and flag not in of_encoders:
            used = look_up(lts if ".lts." in field else config, field)
            assert stated[flag] == str(used), flag
            checked += 1
    assert checked >= 15


def test_the_paper_s_defaults_are_stated() -> None:
    text = hanme("train", "--help", COLUMNS="400").stdout
    config, _ = resolve({"data": {"name": "planted"}, "training": {"recipe": "paper"}})
    stated = dict(re.findall(r"(--[a-z-]+)(?: .*)?\[default: \(.*?; paper: (.*?)\)\]", text))
    assert stated["--select"] == "macro"
    for field, flag in FLAGS:
        if flag in stated and ".lts." not in field:
            assert stated[flag] == str(look_up(config, field)), flag


def test_inspect_shows_the_graph_that_train_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    source = write_imdb(planted(movies=60), tmp_path / "IMDB")
    summary = json.loads(hanme("inspect", "IMDB", "--data", source, "--json").stdout)
    quick = ["--epochs", "1", "--hidden", "8", "--heads", "2", "--out", tmp_path / "run"]
    assert hanme("train", "IMDB", "--data", source, *quick).returncode == 0
    graph = load_graph(Run.open(tmp_path / "run").config)
    assert {row["type"]: row["features"] for row in summary["nodes"]} == graph.widths
    parts = {part: int(mask.sum()) for part, mask in graph.split.parts().items()}
    assert {part: summary["target"][part] for part in parts} == parts


def test_o_is_out_wherever_a_file_is_written() -> None:
    for function in COMMANDS:
        for parameter in Command(function).build().params:
            if "--out" in parameter.opts:
                assert "-o" in parameter.opts
            assert "-o" not in parameter.opts or "--out" in parameter.opts


def test_help_imports_neither_torch_nor_pydantic() -> None:
    code = (
        "import sys, hanme.cli; sys.exit(bool({'torch', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

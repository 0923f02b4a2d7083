"""What once ended in a traceback, in a hang or in silence: each stays as a case of its own.

Damaged run folders are in tests/runs/test_damage.py, full disks and kills in test_faults.py.
"""

import csv
import gzip
import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch

from fuzz.api import TOKEN
from fuzz.harness import run
from fuzz.inputs import RESUME, Inputs, without_seal

DEEP = "[" * 100_000

NEW = ["train", "planted", "--out", "OUT"]
TUNE = [
    "tune", "han", "planted", "--trials", "1", "--out", "OUT/best.toml",
    "--set", "data.options.movies=60", "--epochs", "1",
]  # fmt: skip
REFUSED = {
    "a negative seed": ["inspect", "planted", "--seed", "-1"],
    "nobody's home": ["inspect", "~nosuchuser/graph.toml"],
    "a giant step": ["train", "planted", "--lr", "1e300", "--out", "OUT"],
    "a giant decay": ["train", "planted", "--weight-decay", "1e300", "--out", "OUT"],
    "a giant graph": ["inspect", "planted", "--set", "data.options.movies=99999999999999999999999"],
    "a nested option": ["train", "planted", "--out", "OUT", "--set", f"x={DEEP}"],
    "a nested option that can be read": [*NEW, "--set", f"x={'[' * 900 + ']' * 900}"],
    "a name with a zero byte": ["train", "--config", "a\0.toml", "--out", "OUT"],
    "a negative size": ["inspect", "planted", "--hidden", "-5"],
    "a long dotted key": ["train", "planted", "--out", "OUT", "--set", f"{'a.' * 100_000}b=1"],
    "a path that is not UTF-8": ["train", "planted", "--out", "OUT/\udcff"],
    "a file that is not UTF-8": ["inspect", "OUT/\udcff/graph.toml"],
    "a store's negative seed": ["inspect", "planted", "--store", "OUT/s", "--seed", "-1"],
    "another kind of device": [*NEW, "--device", "meta"],
    "a giant batch": [*NEW, "--batch-size", "99999999999999999999"],
    "options that are no table": [*NEW, "--set", "model.options=5"],
    "a folder for a file": ["tune", "han", "planted", "--force", "--out", "OUT/x.toml"],
    "a name of no host": ["serve", "OUT", "--host", " "],
    "an empty value": ["inspect", "planted", "--features", ""],
    "an empty value after =": ["inspect", "planted", "--features="],
    "a giant number of metapaths": ["inspect", "planted", "--limit", "99999999999999999999"],
    "a giant number of seeds": [*TUNE, "--seeds", "99999999999999999999"],
    "a study that is another file": [*TUNE, "--out", "OUT/mine.toml"],
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_options(tmp_path: Path, name: str) -> None:
    command = [text.replace("OUT", str(tmp_path)) for text in REFUSED[name]]
    (tmp_path / "x.toml").mkdir()
    (tmp_path / "note.txt").write_text("mine")
    (tmp_path / "mine.json").write_text('{"mine": 1}')
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    found = run(command)
    assert found.kind == "refused", found
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}


@pytest.mark.parametrize("depth", [2_000, 300])
def test_a_nested_configuration(inputs: Inputs, tmp_path: Path, depth: int) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(inputs.config.read_text() + f"[x]\ny = {'[' * depth}{']' * depth}\n")
    found = run(["train", "--config", str(path), "--out", str(tmp_path / "run")])
    assert found.kind == "refused", found


def test_a_configuration_with_the_mark_that_windows_writes(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    path = folder / "graph.toml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert run(["inspect", str(folder)]).kind == "accepted"


def test_pipes_and_devices_are_not_waited_for(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    (folder / "graph.toml").unlink()
    (folder / "graph.toml").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "config.toml")
    run_folder = inputs.copy("finished", tmp_path / "run")
    commands = [
        ["inspect", str(folder)],
        ["inspect", str(folder / "graph.toml")],
        ["inspect", str(tmp_path / "config.toml")],
        ["train", "--config", str(tmp_path / "config.toml"), "--out", str(tmp_path / "new")],
        ["serve", str(run_folder), "--token-file", str(tmp_path / "config.toml")],
    ]
    for command in commands:
        assert run(command).kind == "refused"
    for name in ("decision.json", "model.safetensors", "config.json"):
        (run_folder / name).unlink()
        os.mkfifo(run_folder / name)
        assert run(["predict", str(run_folder)]).kind == "refused"


def test_a_number_of_values_that_sql_cannot_hold(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    path = folder / "graph.toml"
    given = '{kind = "category", size = 99999999999999999999}'
    path.write_text(path.read_text().replace('country = "category"', f"country = {given}"))
    assert run(["inspect", str(folder)]).kind == "refused"


def test_a_metapath_of_thousands_of_hops(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    path = folder / "graph.toml"
    path.write_text(f"metapaths = ['film{'-person-film' * 900}']\n{path.read_text()}")
    assert run(["train", str(folder), "--out", str(tmp_path / "run")]).kind == "refused"


def packed(folder: Path, name: str, content: bytes) -> None:
    """Replace a table by a packed one."""
    (folder / name).unlink()
    (folder / f"{name}.gz").write_bytes(content)
    text = (folder / "graph.toml").read_text()
    (folder / "graph.toml").write_text(text.replace(name, f"{name}.gz"))


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_last_line_that_duckdb_would_leave_out(
    inputs: Inputs, tmp_path: Path, end: str, pack: bool
) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    path = folder / "people.csv"
    path.write_text(f"{path.read_text()}p99,{'x' * 33_000_000}{end}")
    if pack:
        packed(folder, path.name, gzip.compress(path.read_bytes(), 1))
    assert run(["inspect", str(folder)]).kind == "refused"


def test_a_packed_table_that_has_changed(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    content = gzip.compress((folder / "people.csv").read_bytes())
    packed(folder, "people.csv", content[:-8] + bytes(4) + content[-4:])
    assert run(["inspect", str(folder)]).kind == "refused"
    (folder / "people.csv.gz").rename(folder / "people.item.gz")
    (folder / "graph.toml").unlink()
    assert run(["init", str(folder / "people.item.gz")]).kind == "refused"


def test_whole_numbers_in_json_that_no_float_can_hold(tmp_path: Path) -> None:
    rows = [{"id": i, "to": 10**25 + i % 3, "y": "ab"[i % 2]} for i in range(12)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    text = "target = 'row'\n[nodes.row]\ntable = 'rows.json'\nid = 'id'\nlabel = 'y'\n"
    (tmp_path / "graph.toml").write_text(f"{text}[relations.to]\ncolumns = 'to'\n")
    found = run(["inspect", str(tmp_path), "--json"])
    assert [kind["nodes"] for kind in json.loads(found.out)["nodes"]] == [12, 3]


def test_a_database_that_ends_within_a_page(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE a (id, label)")
        database.executemany("INSERT INTO a VALUES (?, ?)", [(i, "ab"[i % 2]) for i in range(12)])
    path.write_bytes(path.read_bytes()[:-100])
    assert run(["init", str(tmp_path)]).kind == "refused"


def test_json_with_the_mark_that_windows_writes(tmp_path: Path) -> None:
    rows = [{"id": i, "label": "ab"[i % 2]} for i in range(12)]
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8-sig")
    found = run(["init", str(tmp_path), "--print"])
    assert "[nodes.row]  # 12 rows" in found.out


def test_dates_in_a_form_that_is_none(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    path = folder / "graph.toml"
    form = 'year = {kind = "date", format = "%Q"}'
    path.write_text(path.read_text().replace('year = "number"', form))
    assert run(["inspect", str(folder)]).kind == "refused"


def test_links_in_lists_without_a_separator(tmp_path: Path) -> None:
    rows = [{"id": i, "to": [f"t{i % 3}", "t9"], "y": "ab"[i % 2]} for i in range(12)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    text = "target = 'row'\n[nodes.row]\ntable = 'rows.json'\nid = 'id'\nlabel = 'y'\n"
    (tmp_path / "graph.toml").write_text(f"{text}[relations.to]\ncolumns = 'to'\n")
    found = run(["inspect", str(tmp_path), "--json"])
    assert [kind["nodes"] for kind in json.loads(found.out)["nodes"]] == [12, 4]


@pytest.mark.parametrize("some", ["", ", {'id': 12, 'v': [1.5, 2.5], 'y': 'b'}"])
def test_vectors_of_no_numbers(tmp_path: Path, some: str) -> None:
    rows = ", ".join(f"{{'id': {i}, 'v': [], 'y': '{'ab'[i % 2]}'}}" for i in range(12)) + some
    (tmp_path / "rows.json").write_text(f"[{rows}]".replace("'", '"'))
    text = "target = 'row'\n[nodes.row]\ntable = 'rows.json'\nid = 'id'\nlabel = 'y'\n"
    (tmp_path / "graph.toml").write_text(f"{text}features = {{v = 'vector'}}\n")
    assert run(["inspect", str(tmp_path)]).kind == "accepted"


def test_logits_that_are_no_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*given: object, **options: object) -> torch.Tensor:
        return torch.full((60, 4), torch.nan)

    monkeypatch.setattr(sys.modules["hanme.training.final"], "logits_of", none)
    quick = ["--set", "data.options.movies=60", "--epochs", "1", "--recipe", "paper"]
    found = run(["train", "planted", *quick, "--out", str(tmp_path / "run")])
    assert found.kind == "refused", found


def test_a_header_with_zero_bytes(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    path = folder / "people.csv"
    path.write_bytes(path.read_text().encode("utf-16-le"))
    assert run(["inspect", str(folder)]).kind == "refused"


def test_no_date_is_without_an_end(tmp_path: Path) -> None:
    lines = [f"{i},inf,{'ab'[i % 2]}" for i in range(12)]
    (tmp_path / "a.csv").write_text("\n".join(["id,seen,label", *lines]))
    for command in (["init", str(tmp_path)], ["inspect", str(tmp_path)]):
        assert run(command).kind == "accepted"


def test_line_ends_of_two_kinds(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    lines = (folder / "films.csv").read_bytes().splitlines()
    ends = [b"\n", b"\r\n"] * len(lines)
    (folder / "films.csv").write_bytes(b"".join(a + b for a, b in zip(lines, ends, strict=False)))
    assert run(["inspect", str(folder)]).kind == "refused"


def test_features_of_a_type_that_is_not_there(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("finished", tmp_path / "run")
    without_seal(folder / "features.json")
    values = json.loads((folder / "features.json").read_text())
    values["widths"]["*"] = 3
    (folder / "features.json").write_text(json.dumps(values))
    assert run(["predict", str(folder)]).kind == "refused"


@pytest.mark.parametrize("name", ["config.json", "stack.json", "result.json", "model.safetensors"])
def test_a_file_that_is_missing_or_of_another_run(
    inputs: Inputs, tmp_path: Path, name: str
) -> None:
    folder = inputs.copy("finished", tmp_path / "run")
    shutil.copy(other_run(inputs) / name, folder / name)
    assert run(["predict", str(folder)]).kind == "refused"
    (folder / name).unlink()
    assert run(["predict", str(folder)]).kind == "refused"


def other_run(inputs: Inputs) -> Path:
    """Return a run that differs in its seed alone."""
    folder = inputs.folder / "other"
    if not folder.exists():
        quick = ["--seed", "7", "--out", str(folder)]
        assert run(["train", str(inputs.tables), *RESUME, *quick]).kind == "accepted"
    return folder


def test_a_table_in_the_place_of_a_file_of_the_run(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("finished", tmp_path / "run")
    for name in ("result.json", "config.json", "decision.json"):
        assert run(["predict", str(folder), "--out", str(folder / name)]).kind == "refused"
    assert run(["predict", str(folder), "--out", str(folder / "mine.json")]).kind == "accepted"


def test_a_decision_that_is_missing(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("finished", tmp_path / "run")
    (folder / "decision.json").unlink()
    assert run(["predict", str(folder)]).kind == "refused"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"slopes": {', '"slopes": {"more": 1.0, '),
        ('"kind": "stacked"', '"kind": "heap"'),
        (":ids:", ":names:"),
        ('"blocks":', '"columns":'),
    ],
)
def test_a_stack_that_is_none(inputs: Inputs, tmp_path: Path, old: str, new: str) -> None:
    folder = inputs.copy("finished", tmp_path / "run")
    without_seal(folder / "stack.json")
    values = json.dumps(json.loads((folder / "stack.json").read_text()))
    assert old in values
    (folder / "stack.json").write_text(values.replace(old, new))
    assert run(["predict", str(folder)]).kind == "refused"


def test_a_line_that_would_fill_the_memory(inputs: Inputs, tmp_path: Path) -> None:
    path = tmp_path / "IMDB.zip"
    with zipfile.ZipFile(inputs.archive) as old, zipfile.ZipFile(path, "w", 8) as new:
        for name in old.namelist():
            giant = name.endswith("node.dat")
            new.writestr(name, b"0" * (1 << 25) if giant else old.read(name))
    assert run(["inspect", "IMDB", "--data", str(path)]).kind == "refused"


def test_a_store_removes_no_file_of_anybody_else(inputs: Inputs, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "mine.bin").write_text("mine")
    store = ["inspect", str(inputs.tables), "--store", str(tmp_path / "s")]
    assert run(store).kind == "refused"
    (tmp_path / "s" / "mine.bin").unlink()
    (tmp_path / f".s.{'0' * 32}").mkdir()  # killed
    assert run(store).kind == "accepted"
    assert not list(tmp_path.glob(".s*"))


ASKED = {
    "an origin that is none": "origin: http://[",
    "a range that is none": "range: bytes=-",
}


@pytest.mark.parametrize("name", ASKED)
def test_requests(inputs: Inputs, name: str) -> None:
    headers = ["host: 127.0.0.1", f"authorization: Bearer {TOKEN}", ASKED[name]]
    found = inputs.api.ask(["GET", "/style.css", "", *headers])
    assert found.kind == ("accepted" if "range" in name else "refused"), found


def test_completion_for_no_shell_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanme.cli.app", lambda **options: 1)
    assert run(["--install-completion"]).kind == "refused"


def test_links_in_a_loop(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    (folder / "films.csv").unlink()
    (folder / "films.csv").symlink_to(folder / "people.csv")
    (folder / "people.csv").unlink()
    (folder / "people.csv").symlink_to(folder / "films.csv")
    for command in (["inspect", str(folder)], ["init", str(folder)]):
        assert run(command).kind == "refused"


OUTSIDE: dict[str, Callable[[str], str]] = {
    "an absolute path": lambda text: text.replace("people.csv", "ELSE/people.csv"),
    "dots": lambda text: text.replace("people.csv", "../else/people.csv"),
    "a pattern": lambda text: text.replace("people.csv", "../el*/*.csv"),
    "a link": lambda text: text.replace("people.csv", "link.csv"),
    "a query": lambda text: text.replace(
        'table = "people.csv"', "query = \"SELECT * FROM 'ELSE/people.csv'\""
    ),
    "a database": lambda text: text.replace(
        'table = "people.csv"', 'database = "ELSE/people.csv"\ntable = "people"'
    ),
}


@pytest.mark.parametrize("how", OUTSIDE)
def test_a_graph_reads_only_its_own_folder_unless_allowed(
    inputs: Inputs, tmp_path: Path, how: str
) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    (tmp_path / "else").mkdir()
    (folder / "people.csv").rename(tmp_path / "else" / "people.csv")
    (folder / "link.csv").symlink_to(tmp_path / "else" / "people.csv")
    text = OUTSIDE[how]((folder / "graph.toml").read_text())
    (folder / "graph.toml").write_text(text.replace("ELSE", str(tmp_path / "else")))
    assert run(["inspect", str(folder)]).kind == "refused"
    if how == "a database":  # the file is none: what is allowed is looked at
        assert run(["inspect", str(folder), "--allow", str(tmp_path)]).kind == "refused"
    else:
        allowed = run(["inspect", str(folder), "--allow", str(tmp_path / "else")])
        assert allowed.kind == "accepted", allowed
        assert run(["inspect", str(folder)], HANME_ALLOW=str(tmp_path)).kind == "accepted"


def test_formulas_are_marked_in_csv_alone(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("tables", tmp_path / "tables")
    films = (folder / "films.csv").read_text()
    for old, new in (('"Film, 1"', "=1+1"), ('"Film, 2"', "@x"), ('"Film, 3"', "-12.5")):
        films = films.replace(old, new)
    (folder / "films.csv").write_text(films.replace("Comedy", "=Comedy"))
    out, written = str(tmp_path / "run"), tmp_path / "p.csv"
    quick = ["--epochs", "1", "--hidden", "8", "--heads", "1", "--out", out]
    assert run(["train", str(folder), *quick]).kind == "accepted"
    assert run(["predict", out, "--out", str(written)]).kind == "accepted"
    with written.open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert [rows[f"f{i}"]["name"] for i in range(4)] == ["Film, 0", "'=1+1", "'@x", "-12.5"]
    assert {row["labels"] for row in rows.values()} == {"Drama", "'=Comedy", ""}
    assert '"name": "=1+1"' in run(["predict", out, "--json"]).out


def test_ctrl_c_in_the_middle_of_an_import(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    script = (
        "import signal, hanme.__main__ as start\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "start.sys.modules['hanme.cli'] = None\n"
        "try: start.run()\n"
        "except ImportError: import slow\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert said.returncode == 130
    assert said.stderr.startswith("hanme: interrupted; ")
    assert len(said.stderr.splitlines()) == 1


def test_what_duckdb_makes_of_ctrl_c(tmp_path: Path) -> None:
    script = (
        "import hanme.cli\n"
        "def work(**options): raise RuntimeError('Query interrupted')\n"
        "hanme.cli.app = work\n"
        "hanme.cli.main()\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert said.returncode == 130
    assert said.stderr.startswith("hanme: interrupted; ")


def test_what_a_kill_has_left_is_removed(inputs: Inputs, tmp_path: Path) -> None:
    folder = inputs.copy("begun", tmp_path / "run")
    left = folder / f".parts.{'0' * 32}"
    left.mkdir()
    (left / "0.parquet").touch()
    beside = tmp_path / f".best.{'0' * 32}.toml"
    beside.touch()
    resume = ["train", str(inputs.tables), *RESUME, "--resume", "--out", str(folder)]
    assert run(resume).kind == "accepted"
    assert run([word.replace("OUT", str(tmp_path)) for word in TUNE]).kind == "accepted"
    assert not left.exists()
    assert not beside.exists()
    assert not list(folder.glob("tmp_*"))


STUDIES = {
    "a score that is none": {"score": "x"},
    "a state that is none": {"state": "x"},
    "settings that are none": {"params": {"training.lr": "x"}},
    "settings that are missing": {"params": {}},
    "a number that is none": {"number": None},
}


@pytest.mark.parametrize("name", [*STUDIES, "an end within the file"])
def test_a_damaged_study(inputs: Inputs, tmp_path: Path, name: str) -> None:
    sound = inputs.folder / "study"
    if not sound.exists():
        assert run([word.replace("OUT", str(sound)) for word in TUNE]).kind == "accepted"
    path = tmp_path / "best.json"
    text = (sound / path.name).read_text()
    if name in STUDIES:
        values = json.loads(text)
        del values["sha256"]
        values["trials"][0] |= STUDIES[name]
        text = json.dumps(values)
    path.write_text(text if name in STUDIES else text[:-50])
    more = ["--trials", "2"]  # a further trial is drawn from the settings of the first
    found = run([*(word.replace("OUT", str(tmp_path)) for word in TUNE), *more])
    assert found.kind == "refused", found
    assert not (tmp_path / "best.toml").exists()


@pytest.mark.slow
def test_torchrun_that_was_killed_as_it_started_a_process(tmp_path: Path) -> None:
    rank = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    torchrun = {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    command = ["train", "planted", "--batch-size", "16", "--out", str(tmp_path / "run")]
    said = subprocess.run(
        [sys.executable, "-m", "hanme", *command],
        env=os.environ | rank | torchrun,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert said.returncode == 2
    assert said.stderr.startswith("hanme: torchrun is not at 127.0.0.1:9: ")


def test_a_message_for_a_full_disk() -> None:
    with open("/dev/full", "w") as full:
        said = subprocess.run([sys.executable, "-m", "hanme", "inspect", "/no/such"], stderr=full)
    assert said.returncode == 2


@pytest.mark.slow
def test_an_ascii_terminal_and_another_locale(tmp_path: Path) -> None:
    hanme = [sys.executable, "-c", "from hanme.cli import main; main()"]
    said = subprocess.run(
        [*hanme, "train", "--help"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert said.stdout.isascii()
    said = subprocess.run(
        [*hanme, "train", "planted", "--out", f"{tmp_path}/données".encode()],
        env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert said.returncode == 2
    assert b"PYTHONUTF8=1" in said.stderr


def test_brackets_in_a_path_are_no_markup_on_a_terminal(tmp_path: Path) -> None:
    script = (
        "from hanme.cli.show import show_progress\n"
        "with show_progress('films[/x]: runs', 3) as (bar, task):\n"
        "    bar.advance(task)\n"
    )
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-c", script]
    subprocess.run(command, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    assert b"films[/x]" in os.read(ours, 100_000)
    os.close(ours)

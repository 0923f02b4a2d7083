"""The commands as a user meets them: their output and exit status, in real processes or here."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import hanme
from hanme import __version__
from hanme.cli import OUT_OF_MEMORY, _describe
from hanme.cli.show import print_rules
from hanme.common.files import read_json, write_json
from hanme.errors import HanmeError
from hanme.nn import MODELS

HANME = str(Path(sys.executable).with_name("hanme"))
QUICK = ["--epochs", "3", "--hidden", "16", "--heads", "2", "--set", "data.options.movies=100"]


def in_a_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HANME, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    done = in_a_process("train", "planted", "--out", folder, *QUICK)
    assert done.returncode == 0, done.stderr
    assert "Test nodes, with 95 % intervals" in done.stdout
    assert "movie-actor-movie: " in done.stderr
    assert "instances, backend streaming, about" in done.stderr
    assert str(folder) in " ".join(done.stdout.split())
    assert "Next: hanme predict, evaluate or explain." in done.stdout
    assert "\x1b" not in done.stdout + done.stderr  # piped: plain
    return folder


def test_train_and_evaluate_agree(run: Path) -> None:
    done = hanme("evaluate", run, "--json")
    result = json.loads((run / "result.json").read_text())
    others = {name: result[name] for name in ("probabilities", "suspicion")}
    assert json.loads(done.stdout) == result["scores"] | others
    shown = hanme("evaluate", run).stdout
    assert "Out-of-fold training nodes" in shown
    counts = result["counts"]["model"]["test"]
    assert f" {counts['correct']} of {counts['nodes']} " in shown
    assert "Brier score" in shown


def test_evaluate_says_first_what_gives_the_label_away(run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    result = read_json(folder / "result.json")
    source = {"name": "year", "roc_auc": 0.99, "remedy": "delete year"}
    result["suspicion"] = {"roc_auc": 0.999, "sources": [source], "without": {"roc_auc": 0.7}}
    write_json(folder / "result.json", result)
    lines = hanme("evaluate", folder).stdout.splitlines()
    assert lines[:2] == [
        "ROC AUC is 0.999 on rows that nothing was fitted to, and year alone reaches 0.990: is it "
        "known when you predict?",
        "Without it, the base learners reach 0.700. To leave it out: delete year.",
    ]


def test_decision_rules_have_a_row_each_where_they_differ(
    capsys: pytest.CaptureFixture[str],
) -> None:
    good, bad = {"val": {"micro": 75.0, "macro": 70.0}}, {"val": {"micro": 62.5, "macro": 70.0}}
    print_rules({"with_fallback": good, "without_fallback": bad})
    said = capsys.readouterr().out
    assert all(text in said for text in ("with fallback", "without fallback", "75.00", "62.50"))
    print_rules({"with_fallback": good, "without_fallback": good})
    assert not capsys.readouterr().out


def test_train_json_and_resume(run: Path) -> None:
    done = hanme("train", "planted", "--out", run, *QUICK, "--resume", "--json")
    written = read_json(run / "result.json")
    assert written.pop("files").keys() >= {"config.json", "model.safetensors"}
    assert json.loads(done.stdout) == written


def test_train_starts_from_a_configuration_and_options_go_before_it(tmp_path: Path) -> None:
    arguments = ["--config", "hanme-direct-planted", "--epochs", 2, "--lts", "root", "--heads", 2]
    done = hanme("train", *arguments, "--set", "data.options.movies=100", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["data"]["name"] == "planted"
    assert config["data"]["options"] == {"movies": 100}
    assert config["model"]["options"]["encoder"] == "direct"
    assert config["model"]["options"]["heads"] == 2
    assert config["model"]["options"]["hidden_channels"] == 32  # the file's
    assert config["training"]["epochs"] == 2
    assert config["training"]["lts"]["pace"] == "root"
    assert config["training"]["decide"] == "half"


def test_a_configuration_leaves_metapaths_to_the_graph(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'data = {name = "planted", options = {movies = 100}}\nmodel.name = "hanme"\n'
    )
    given = ["--config", tmp_path / "mine.toml", "--epochs", 1, "--hidden", 8, "--heads", 2]
    quick = ["--set", "training.trees=false", "-m", "movie-actor-movie"]
    for options, paths in ((quick, quick[-1:]), (quick[:2], ["movie-director-movie", *quick[-1:]])):
        done = hanme("train", *given, *options, "--out", tmp_path / str(len(options)))
        assert done.returncode == 0, done.stderr
        config = json.loads((tmp_path / str(len(options)) / "config.json").read_text())
        assert config["model"]["options"]["metapaths"] == paths


def test_an_unknown_option_is_refused_where_there_is_no_network(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    rows = "".join(f"{i},{'xy'[i % 2]},{i * 7 % 31}\n" for i in range(60))
    (tmp_path / "a.csv").write_text(f"id,class,size\n{rows}")
    assert hanme("init", tmp_path).returncode == 0
    assert "hanme has no option 'foo'" in refused("train", tmp_path, "--set", "foo=1")


def test_inspect_shows_types_relations_metapaths_and_costs() -> None:
    found = json.loads(
        hanme("inspect", "planted", "--set", "data.options.movies=100", "--json").stdout
    )
    assert [row["type"] for row in found["nodes"]] == ["movie", "actor", "director", "keyword"]
    rows = {row["metapath"]: row for row in found["metapaths"]}
    assert rows["movie-actor-movie"]["instances"] > 100
    assert rows["movie-actor-movie-actor-movie"]["bytes"]["eager"] > 10**6
    text = hanme("inspect", "planted", "--set", "data.options.movies=100").stdout
    assert "movie-actor-movie-director-movie" in text


def test_version_and_help_are_quick() -> None:
    assert in_a_process("--version").stdout == f"hanme {__version__}\n"
    code = "import sys, hanme.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_teaches() -> None:
    assert "hanme train planted" in hanme("--help").stdout
    shown = hanme("train", "--help").stdout
    assert "LTS" in shown
    assert all(name in shown for name in MODELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["planet"], "unknown data set 'planet'"),
        (["planted", "-m", "movie-actor-film"], "from actor there is no step to 'film'"),
        (["planted", "--hidden", "100"], "100 for 8 heads"),
        (["planted", "--gamma", "1"], "gamma"),
        (["planted", "--gamma", "0"], "gamma"),
        (["planted", "--encoder", "mean", "--gamma", "0.3"], "Mean has no option 'gamma'"),
        (["planted", "--model", "han", "--encoder", "mean"], "`encoder` to be one of end"),
        (["planted", "--model", "gat", "-m", "movie-actor-movie"], "gat has no option 'metapaths'"),
        (["planted", "--model", "magna", "--backend", "eager"], "magna has no option 'backend'"),
        (["planted", "--model", "gru"], "unknown model 'gru'; there are hanme, han"),
        (["planted", "--set", "heads=x"], "heads: Input should be a valid integer, but got 'x'"),
        (["planted", "--set", "depth=2"], "Multihop has no option 'depth'"),
        (["planted", "--set", "depth"], "KEY=VALUE"),
        (["planted", "--lts", "slow"], "training.lts.pace"),
        (["planted", "--epochs", "0"], "training.epochs"),
        (["planted", "--dropout", "1"], "dropout"),
        (["planted", "--set", "movies"], "KEY=VALUE"),
        (["planted", "--set", "data.options.films=3"], "planted has no option 'films'"),
        (["planted", "--set", "data.options.movies=none"], "movies"),
        (["planted", "--select", "mini"], "training.select"),
        (["--epochs", "2"], "no graph to train on"),
        (["--config", "gru-IMDB"], "no configuration 'gru-IMDB'; there are"),
        (["--config", "no/such.toml"], "no/such.toml: it cannot be read"),
        (["--config", "han-planted", "--set", "training.lr=x"], "han-planted: training.lr"),
        (["--config", "han-planted", "--set", "data.name=5"], "unknown data set '5'"),
        (["--config", "han-planted", "--set", "model.name=[1]"], "model.name"),
        (["planted", "--backend", "magic"], "auto, eager, chunked"),
        (["IMDB", "--data", "/no/such/place"], "nothing found for IMDB"),
        (["planted", "--data", "/no/such/place"], "takes no files"),
        (["planted", "--features", "some"], "data.features"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str], message: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    assert message in refused("train", *arguments, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trai"], "No such command 'trai'. Did you mean 'train'?; see hanme --help"),
        (["train", "--epochs", "ten"], "'--epochs': Input should be a valid integer"),
        (
            ["explain", "run", "0", "--reasons", "0"],
            "'--reasons': Input should be greater than or equal",
        ),
        (
            ["explain", "run", "--reason", "1"],
            "--reason (Possible options: --json, --reasons)",
        ),
        (["explain", "run", "-9"], "No such option: -9; if it is an id, write -- before it"),
        (["tune"], "Missing argument 'MODEL'; see hanme tune --help"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_2(
    arguments: list[str], message: str, refused: Callable[..., str]
) -> None:
    assert message in refused(*arguments)


def test_without_a_command_there_is_help() -> None:
    done = in_a_process()
    assert done.returncode == 2
    assert "hanme train planted" in done.stdout + done.stderr


@pytest.mark.slow
def test_an_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    forever = ["--set", "training.patience=1000000", "--epochs", "1000000"]
    command = [HANME, "train", "planted", "--out", str(tmp_path / "run"), *QUICK, *forever]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's job in the background, as these tests may be, has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 100
        while not (tmp_path / "run" / "checkpoint.safetensors").exists():  # training is under way
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 130
    assert "hanme: interrupted; continue train with --resume" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("below", ["run", "runs/run"])
def test_a_folder_inside_a_file(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = hanme("train", "planted", "--out", tmp_path / "file" / below, *QUICK)
    assert done.returncode == 2
    assert f"{tmp_path / 'file'}: a file, where a folder is needed" in done.stderr


@pytest.mark.parametrize("out", ["/dev/null/run", "x" * 300])
def test_a_folder_that_cannot_be_made(out: str) -> None:
    done = hanme("train", "planted", "--out", out, *QUICK)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("hanme: ")


def test_an_output_folder_that_holds_a_run(run: Path, refused: Callable[..., str]) -> None:
    assert "already holds a run" in refused("train", "planted", "--out", run, *QUICK)


def test_runs_are_listed_with_settings_state_and_scores(run: Path) -> None:
    (listed,) = json.loads(hanme("runs", run.parent, "--json").stdout)
    scores = read_json(run / "result.json")["scores"]["decided"]
    assert (listed["folder"], listed["state"]) == (str(run), "finished")
    assert listed["scores"] == scores
    shown = hanme("runs", run.parent)
    assert shown.returncode == 0
    assert all(text in shown.stdout for text in ("planted", f"{scores['test']['micro']:.2f}"))
    assert hanme("runs", run / "nothing").returncode == 2


def test_a_run_folder_from_another_model(
    run: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    said = refused("train", "planted", "--out", run, *QUICK, "--resume", "--model", "han")
    assert "another configuration (model.name: hanme, han)" in said
    assert "holds no run" in refused("evaluate", tmp_path)


def _hgb(folder: Path, **change: str) -> Path:
    """A tiny graph named IMDB in the benchmark's layout."""
    info = {
        "node.dat": {"node type": {"0": "movie", "1": "actor"}},
        "link.dat": {
            "link type": {
                "0": {"start": 0, "end": 1, "meaning": "movie->actor"},
                "1": {"start": 1, "end": 0, "meaning": "actor->movie"},
            }
        },
        "label.dat": {"node type": {"0": {"0": "Drama", "1": "Action"}}},
    }
    files = {
        "info.dat": json.dumps(info),
        "node.dat": "".join(f"{i}\tm{i}\t0\t1,0,{i}\n" for i in range(8)) + "8\ta\t1\n",
        "link.dat": "".join(f"{i}\t8\t0\t1\n8\t{i}\t1\t1\n" for i in range(8)),
        "label.dat": "".join(f"{i}\tm{i}\t0\t{i % 2}\n" for i in range(5)),
        "label.dat.test": "5\tm5\t0\t1\n6\tm6\t0\t0\n",
    } | change
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("_dat", ".dat")).write_text(text)
    return folder


def test_a_label_file_that_names_an_unknown_node(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    source = _hgb(tmp_path / "IMDB", **{"label.dat": "0\tm0\t0\t1\n77\tx\t0\t1\n"})
    said = refused("inspect", "IMDB", "--data", source, HANME_CACHE=str(tmp_path / "cache"))
    assert "label.dat: not as in the benchmark: a node is not of the type that has labels" in said


def test_a_cut_off_archive(refused: Callable[..., str], tmp_path: Path) -> None:
    source = _hgb(tmp_path / "IMDB")
    archive = tmp_path / "IMDB.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in source.iterdir():
            file.write(path, f"IMDB/{path.name}")
    archive.write_bytes(archive.read_bytes()[:-40])
    said = refused("inspect", "IMDB", "--data", archive, HANME_CACHE=str(tmp_path / "cache"))
    assert "IMDB.zip cannot be read, damaged or cut off" in said


def test_a_metapath_with_no_instance(refused: Callable[..., str], tmp_path: Path) -> None:
    source = _hgb(tmp_path / "IMDB", **{"link.dat": "0\t8\t0\t1\n"})
    arguments = ["--data", source, "-m", "movie-actor-movie", "--out", tmp_path / "run"]
    said = refused("train", "IMDB", *arguments, HANME_CACHE=str(tmp_path / "cache"))
    assert "movie-actor-movie: it has no instance on this graph; the relation" in said
    assert not (tmp_path / "run").exists()


def test_a_graph_of_one_s_own_in_the_benchmark_s_layout_trains(tmp_path: Path) -> None:
    source = _hgb(tmp_path / "IMDB")
    arguments = ["--data", source, "-m", "movie-actor-movie", "--out", tmp_path / "run", *QUICK[:6]]
    done = hanme("train", "IMDB", *arguments, HANME_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert hanme("evaluate", tmp_path / "run", HANME_CACHE=str(tmp_path / "cache")).returncode == 0


def chained(error: Exception, cause: Exception) -> Exception:
    error.__context__ = cause
    return error


SEGMENT = "libx.so: failed to map segment from shared object"


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (MemoryError(), True),
        (ImportError(SEGMENT), True),
        (ImportError(f"{SEGMENT}: Operation not permitted"), False),  # a disk mounted noexec
        (chained(OSError("Could not find/load 'libllvmlite.so'"), OSError(SEGMENT)), True),
        (OSError("Could not find/load 'libllvmlite.so'"), False),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (ValueError("std::bad_alloc"), True),
        (RuntimeError("can't start new thread"), True),
        (Exception("Out of Memory Error: Failed to allocate block of 2048 bytes"), True),
        (chained(HanmeError("films.csv: out of memory"), MemoryError()), False),
    ],
)
def test_a_lack_of_memory_is_told_from_other_errors(error: Exception, found: bool) -> None:
    assert (_describe(error) == OUT_OF_MEMORY) == found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not limit the address space")
@pytest.mark.parametrize("mb", [400, 700, 800, 1100])
def test_where_memory_is_short_one_line_says_so(mb: int, tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f'ulimit -v {mb * 1000} && exec "$0" "$@"', HANME, "train", "planted",
         "--out", str(tmp_path / "run"), *QUICK],
        capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"hanme: {OUT_OF_MEMORY}"
    assert "Traceback" not in done.stderr


def test_training_that_comes_to_nothing_leaves_no_folder(
    tmp_path: Path,
) -> None:
    line = ["train", "planted", *QUICK, "--recipe", "paper", "--lr", "1e30"]
    assert hanme(*line, cwd=tmp_path).returncode == 2
    assert not list((tmp_path / "runs").iterdir())

"""Many runs: each in a process of its own, and none lost for another's sake."""

from pathlib import Path

import pytest

from hanme.experiments.configuration import find_config, override, read_config
from hanme.runs import Run, RunConfig
from hanme.runs.pool import train_all


def config(**changes: object) -> RunConfig:
    quick = {"training.epochs": 2, "data.options.movies": 100}
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return RunConfig.make(override(read_config(find_config("han-planted")), {**quick, **named}))


@pytest.mark.slow
def test_memory_is_a_run_s_own_and_a_failure_stops_no_other(tmp_path: Path) -> None:
    large = config(model__options__hidden_channels=2048)
    wrong = config(model__options__metapaths=["movie-actor-film"])
    (tmp_path / "file").touch()
    jobs = [
        (large, tmp_path / "large"),
        (wrong, tmp_path / "wrong"),
        (config(), tmp_path / "file" / "crash"),  # no mistake that is looked for
        (config(), tmp_path / "a"),
    ]
    done: list[Path] = []
    failed = train_all(jobs, 1, done.append)
    assert done == [folder for _, folder in jobs]
    assert list(failed) == [tmp_path / "wrong", tmp_path / "file" / "crash"]
    assert "no step to 'film'" in failed[tmp_path / "wrong"]
    assert "NotADirectoryError" in failed[tmp_path / "file" / "crash"]
    peaks = [Run.open(tmp_path / name).result()["peak_memory_mb"] for name in ("large", "a")]
    assert peaks[1] < peaks[0] - 20
    before = (tmp_path / "a" / "result.json").stat()
    assert train_all([jobs[3]], 1) == {}
    assert (tmp_path / "a" / "result.json").stat() == before

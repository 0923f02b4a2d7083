"""Threads: as many as the quota of a container allows, and none that spins."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hanme.common import cpus as module
from hanme.common.cpus import cpus


@pytest.mark.parametrize(
    ("files", "own", "expected"),
    [
        ({}, None, 8),
        ({"cpu.max": "max 100000"}, "0::/", 8),
        ({"cpu.max": "250000 100000"}, "0::/", 2),
        ({"cpu.max": "50000 100000"}, "0::/", 1),
        ({"cpu.max": "1600000 100000"}, "0::/", 8),
        ({"cpu.max": "nonsense"}, "0::/", 8),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, "0::/a/b", 3),
        ({"cpu.max": "300000 100000"}, "0::/not/seen/in/a/container", 3),
        ({"cpu.max": "300000 100000"}, None, 3),  # without /proc
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu,cpuacct:/", 8),
        (
            {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"},
            "5:memory:/x\n3:cpu,cpuacct:/docker/x\n0::/x",
            4,
        ),
        ({"cpu/d/cpu.cfs_quota_us": "7", "cpu/d/cpu.cfs_period_us": "0"}, "3:cpu:/d", 8),
    ],
)
def test_a_quota_limits_the_threads(
    files: dict[str, str],
    own: str | None,
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "affinity", lambda: 8)
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text + "\n")
    if own is not None:
        (tmp_path / "own").write_text(own + "\n")
    assert cpus(tmp_path / "groups", tmp_path / "own") == expected


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be chosen here")
def test_no_more_threads_than_cores_of_the_process() -> None:
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{core}]); from hanme.common.cpus import cpus"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(cpus())"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"


def test_openmp_waits_without_spinning_unless_told_otherwise() -> None:
    """Every OpenMP library reads this when it is loaded, so it is set before."""
    code = "import hanme, os; print(os.environ['OMP_WAIT_POLICY'])"
    for given, expected in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")):
        inherited = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=inherited | given,
        )
        assert done.stdout.strip() == expected

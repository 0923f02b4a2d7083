"""No process outlives the benchmark that started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
from hanme.runs.pool import train_all
from tests.runs.test_pool import config

train_all([(config(training__epochs=100000), Path(sys.argv[1]))], 1)
"""


def members(group: int) -> list[int]:
    """Return the processes of a group that are not dead yet."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc lists processes")
@pytest.mark.parametrize("count", [2, 4])  # the tracker has come; the worker has come
def test_all_processes_end_with_their_parent_even_while_they_start(
    tmp_path: Path, count: int
) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run")]
    started = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(members(started.pid)) < count:
        assert started.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.001)
    started.kill()
    started.wait()
    deadline = time.monotonic() + 5
    while left := members(started.pid):
        if time.monotonic() > deadline:
            os.killpg(started.pid, signal.SIGKILL)
            pytest.fail(f"{len(left)} processes left")
        time.sleep(0.01)

"""No process outlives the benchmark that started it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fuzz.processes import MARK, alive, end

SCRIPT = """
import sys
from pathlib import Path
from hanme.runs.pool import train_all

sys.path.insert(0, sys.argv[2])
from test_pool import config

train_all([(config(training__epochs=100000), Path(sys.argv[1]))], 1)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="finds processes in /proc, as Linux has it"
)
@pytest.mark.parametrize("count", [2, 4])  # the tracker has come; the worker has come
def test_all_processes_end_with_their_parent_even_while_they_start(
    tmp_path: Path, count: int
) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), str(Path(__file__).parent)]
    mark = str(tmp_path)
    environment = os.environ | {MARK: mark}
    started = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while len(alive(mark)) < count:
        assert started.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    started.kill()
    started.wait()
    deadline = time.monotonic() + 5
    while left := alive(mark):
        if time.monotonic() > deadline:
            end(left)
            pytest.fail(f"{len(left)} processes left")
        time.sleep(0.05)

"""Some operations on the files of a run, failed by a real process; ``make faults`` fails all."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the shim")
def test_a_run_survives_a_kill_and_a_full_disk_in_the_middle_of_its_files() -> None:
    script = Path(__file__).with_name("faults.py")
    done = subprocess.run(
        [sys.executable, str(script), "--most", "1", "run", "batches"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in done.stdout.splitlines():
        assert "killed: killed, then the same" in line
        assert "disk full: refused, then the same" in line

"""Kills and full disks, in real processes; ``make faults`` and ``make kills`` try more of them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


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


def test_killed_commands_continue_to_the_same_result() -> None:
    script = Path(__file__).with_name("kills.py")
    done = subprocess.run(
        [sys.executable, str(script), "--kills", "1"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""Run commands as a user types them, in this process or a fork: starting one takes seconds."""

import io
import multiprocessing
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from hanme.cli import main


def hanme(
    *arguments: object, cwd: Path | str = ".", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of hanme."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, chdir(cwd):
        patch.setattr(sys, "argv", ["hanme", *map(str, arguments)])
        for name, value in environment.items():
            patch.setenv(name, value)
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as left,
        ):
            main()
    status = left.value.code
    assert isinstance(status, int)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def forked(work: Callable[..., object], *arguments: object) -> BaseProcess:
    """Start work in a process forked from this one, to be killed or robbed of its streams."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    return process


def shell(block: str, cwd: Path, **environment: str) -> str:
    """Run a block of a document, line by line: hanme here, all else in a shell."""
    beside = str(Path(sys.executable).parent)
    path = {"PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}
    said = ""
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["hanme"]:
            done = hanme(*words[1:], cwd=cwd, **environment)
        else:
            done = subprocess.run(
                ["sh", "-e", "-c", line],
                cwd=cwd,
                env=os.environ | path | environment,
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        said += done.stdout
    return said

"""Packages from outside the repository: install one, and run hanme with or without it."""

import os
import subprocess
import sys
from pathlib import Path


def hanme(*arguments: str, folder: Path, plugins: Path | None) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with the packages installed into another."""
    paths = [str(plugins)] if plugins else []
    paths.append(os.environ.get("PYTHONPATH", ""))
    return subprocess.run(
        [sys.executable, "-m", "hanme", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def install(folder: Path, name: str, code: str, project: str) -> Path:
    """Write a package of one module, install it into a folder of its own, and return that."""
    source, target = folder / "source", folder / "plugins"
    source.mkdir()
    (source / f"{name}.py").write_text(code)
    (source / "pyproject.toml").write_text(project)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    done = subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(target), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target

"""The wheel works outside the repository, with all of its files."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import hanme

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


def run(*command: object, cwd: Path, **environment: str) -> str:
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=inherited | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an environment that has the libraries of this one, without hanme."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
    run(*build, ROOT, cwd=folder)
    (wheel,) = folder.glob("hanme-*.whl")
    venv.create(folder / "venv", with_pip=False)
    bin = folder / "venv" / "bin"
    install = (sys.executable, "-m", "pip", "--python", bin / "python", "install", "--no-deps")
    run(*install, "--no-index", "--quiet", wheel, cwd=folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "venv" / "lib" / version / "site-packages"
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return bin


def test_the_package_is_the_installed_one_and_has_its_data(bin: Path, tmp_path: Path) -> None:
    code = (
        "import hanme, hanme.experiments.configuration as c; "
        "print(hanme.__file__, hanme.__version__, len(c.packaged())); "
        "from hanme import Classifier, Graph"
    )
    file, version, configurations = run(bin / "python", "-c", code, cwd=tmp_path).split()
    assert Path(file).is_relative_to(bin.parent)
    assert version == hanme.__version__
    assert int(configurations) == 47
    installed = Path(file).parent
    kept = {".css", ".html", ".js", ".svg", ".toml", ".typed"}
    data = {p.relative_to(ROOT / "src/hanme") for p in (ROOT / "src/hanme").rglob("*.*")}
    assert all((installed / path).exists() for path in data if path.suffix in kept)


def test_the_command_trains(bin: Path, tmp_path: Path) -> None:
    assert run(bin / "hanme", "--version", cwd=tmp_path).split()[-1] == hanme.__version__
    # Without compiled code: tests/ops/test_streaming.py compiles it in other places.
    quick = ("--epochs", "2", "--hidden", "16", "--heads", "2", "--set", "data.options.movies=100")
    quick += ("--backend", "chunked")
    cache = str(tmp_path / "cache")
    run(bin / "hanme", "train", "planted", "--out", "r", *quick, cwd=tmp_path, HANME_CACHE=cache)
    assert (tmp_path / "r" / "result.json").exists()

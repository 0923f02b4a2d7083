"""A report is one file that needs nothing else, whatever names it holds."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hanme.serve.report import bundle
from serving import HOSTILE


@pytest.fixture(scope="module")
def page(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report on hostile names, by the command, without the packages that a server needs."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    missing = (
        "import sys; sys.modules |= dict.fromkeys(['fastapi', 'starlette', 'uvicorn', 'anyio'])"
    )
    command = [
        sys.executable,
        "-c",
        f"{missing}; from hanme.cli import main; main()",
        "serve",
        runs / "hostile",
        "--export",
        out,
        "--node",
        "f0",
        "-n",
        HOSTILE[4],
    ]
    subprocess.run(list(map(str, command)), check=True)
    return out.read_text(encoding="utf-8")


def test_it_holds_the_data_and_no_name_is_markup(page: str) -> None:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1
    assert "<" not in found[0]
    data = json.loads(found[0])
    assert [node["prediction"]["name"] for node in data["nodes"]] == [HOSTILE[0], HOSTILE[4]]
    assert page.count("<script") == 2
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "").replace(found[0], "")


def test_its_policy_allows_its_own_script_and_style_alone(page: str) -> None:
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script, style)
    ]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'"
    )


def test_the_bundle_holds_every_module_once() -> None:
    text = bundle("report.js")
    names = re.findall(r'^modules\["([^"]+)"\] = ', text, re.MULTILINE)
    assert len(names) == len(set(names)) > 5
    assert names[-1] == "report.js"
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    assert "</script" not in text


def test_mistakes_are_one_line(runs: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    run = runs / "hostile"
    out = tmp_path / "report.html"
    assert "ends with .html" in refused("serve", run, "--export", tmp_path / "report.txt")
    assert "no run" in refused("serve", tmp_path / "nothing", "--export", out)
    assert "no node has" in refused("serve", run, "--export", out, "--node", "nobody")
    assert "one run" in refused("serve", run, run, "--export", out)
    assert "--export" in refused("serve", run, "--node", "f0")
    assert not list(tmp_path.iterdir())

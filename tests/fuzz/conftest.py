"""Sound inputs, made once."""

from pathlib import Path

import pytest

from fuzz.inputs import Inputs


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return Inputs.make(tmp_path_factory.mktemp("sound") / "inputs")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HANME_HGB_URL", "https://127.0.0.1:9/{name}.zip")  # nobody listens there
    monkeypatch.delenv("HANME_DATA", raising=False)
    monkeypatch.delenv("HANME_ALLOW", raising=False)

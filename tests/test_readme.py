"""The Python of the README (on the real graph, cut short) and of docs/explain.md runs."""

import re
from pathlib import Path

from hanme.datasets import METAPATHS, planted
from hanme.nn import HANME
from hanme.training import Trainer, TrainingConfig

ROOT = Path(__file__).parent.parent


def python_blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_python_blocks_run(hgb_source: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HANME_DATA", str(hgb_source))
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks("README.md")
    assert len(blocks) == 2
    code = "\n".join(blocks).replace("TrainingConfig(", "TrainingConfig(epochs=2, ")
    names: dict = {}
    exec(code, names)
    assert names["logits"].shape == (4932, 5)
    assert names["data"].metapath_instances["movie-actor-movie"].shape == (111045, 3)


def test_the_python_of_explain_runs(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    data = planted(movies=100)
    data["movie"].name = ["Inception", *data["movie"].name[1:]]
    model = HANME(
        data.metadata(),
        target="movie",
        out_channels=len(data["movie"].label_names),
        metapaths=METAPATHS["planted"],
        hidden_channels=16,
        heads=2,
    )
    Trainer(model, data, TrainingConfig(epochs=5)).run()
    label = str(data["movie"].label_names[0])
    (code,) = python_blocks("docs/explain.md")
    exec(code.replace('"Drama"', repr(label)), {"model": model.train(False), "data": data})
    said = capsys.readouterr().out
    assert said.startswith("Inception: ")
    assert "logit moves without k instances" in said
    assert label in (tmp_path / "why.html").read_text()

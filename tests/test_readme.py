"""The README's Python runs as it stands, on the real graph, cut short."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_python_blocks_run(hgb_source: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HANME_DATA", str(hgb_source))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 2
    code = "\n".join(blocks).replace("TrainingConfig(", "TrainingConfig(epochs=2, ")
    names: dict = {}
    exec(code, names)
    assert names["logits"].shape == (4932, 5)
    assert names["data"].metapath_instances["movie-actor-movie"].shape == (111045, 3)

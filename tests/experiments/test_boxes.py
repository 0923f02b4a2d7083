"""Box plots: a failed run is an arrow, and the others keep a scale that can be read."""

from pathlib import Path

from matplotlib.figure import Figure

from hanme.experiments import boxes


def test_one_failed_run_does_not_spoil_the_scale(tmp_path: Path, monkeypatch) -> None:
    def row(name: str, *values: float) -> dict:
        scores = {f"half.test.{f1}": {"values": list(values)} for f1 in ("micro", "macro")}
        return {"name": name, "published": [], **scores}

    drawn: list[Figure] = []
    monkeypatch.setattr(boxes, "save_figure", lambda figure, stem: drawn.append(figure) or [])
    monkeypatch.setitem(boxes.RULES, "half", "half")
    rows = [row("gat", 64, 65, 66, 65, 5), row("han", 67, 68, 67.5, 68, 67)]
    boxes.draw_boxes(rows, "IMDB", "half", tmp_path / "boxes")
    panel = drawn[0].axes[0]
    low, high = panel.get_xlim()
    assert 60 < low < 64 < 68 < high < 72
    assert [text.get_text() for text in panel.texts] == ["5.0"]
    assert drawn[0].get_figwidth() <= 8

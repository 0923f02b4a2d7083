"""What is shown while a model is trained."""

import re

import pytest

from hanme.cli import show
from hanme.common.progress import begin_stage
from hanme.data import planted
from hanme.nn import HANME
from hanme.training import Trainer, TrainingConfig, build_seeded


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    graph = planted(movies=100)
    model, _ = build_seeded(
        lambda: HANME(
            graph.metadata(),
            "movie",
            graph.metapaths,
            len(graph.labels),
            hidden_channels=16,
            heads=2,
        ),
        graph,
        seed=1,
    )
    return Trainer(model, graph, TrainingConfig(recipe="paper", epochs=4))


def test_a_line_per_stage_where_output_is_piped(
    trainer: Trainer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "LINE_SECONDS", 0.0)
    with show.show_stages():
        begin_stage("loading")
        begin_stage("linear model")
        trainer.run()
        begin_stage("stacking")
    said = capsys.readouterr().err
    assert "\r" not in said
    first, network, *epochs, last = said.splitlines()
    assert (first, network, last) == ("linear model", "network", "stacking")
    assert [line[:16] for line in epochs] == [
        "network: 25%, at",
        "network: 50%, at",
        "network: 75%, at",
    ]
    assert all(re.search(r"at most [\d.]+ s left, validation macro F1 \d", line) for line in epochs)


@pytest.mark.parametrize(
    ("loss", "auc", "said"),
    [
        (0.3, 0.8, ""),
        (0.6, 0.5, "Always predicting the most common label is as good on validation nodes."),
        (0.6, 0.8, ""),  # the probabilities are off, but their order is not
        (0.41, 0.7, "The network adds nothing measurable here; predictions rely on the linear"),
    ],
)
def test_a_model_that_does_not_win_is_said_so(
    loss: float, auc: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def by_part(loss: float, auc: float) -> dict[str, dict[str, float]]:
        f1 = {"micro": 90.0, "macro": 50.0}
        return {part: {**f1, "log_loss": loss, "roc_auc": auc} for part in ("val", "test")}

    baselines = {"majority": by_part(0.5, 0.5), "linear": by_part(0.4, 0.75)}
    show.print_comparison("hanme", {"probabilities": by_part(loss, auc), "baselines": baselines})
    shown = " ".join(capsys.readouterr().out.split())
    assert said in shown
    assert bool(shown) == bool(said)


def test_few_nodes_are_shown_as_counts_with_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    scores = {"micro": 95.0, "macro": 90.0}
    bounds = {"micro": [76.4, 99.1], "macro": [90.0, 90.0]}
    result = {
        "scores": {"decided": {"test": scores}},
        "probabilities": {"test": {"log_loss": 0.12345}},
        "baselines": {"majority": {"test": scores}, "linear": {"test": scores}},
        "intervals": {name: {"test": bounds} for name in ("model", "majority", "linear")},
        "counts": {"model": {"test": {"correct": 19, "nodes": 20}}},
        "label_nodes": {"test": {"Drama": 13, "Comedy": 7, "Opera": 0}},
    }
    show.print_scores("hanme", result, "val")
    assert not capsys.readouterr().out
    show.print_scores("hanme", result, "test")
    shown = capsys.readouterr().out
    assert [cell.strip() for cell in re.findall(r"micro F1 \(%\) │([^│]*)│", shown)] == [
        "95.0 (76 – 99)"
    ]
    assert re.search(r"correct +│ 19 of 20 +│ – +│ – ", shown)
    assert re.search(r"macro F1 \(%\) +│ 90.0 +│", shown)
    assert re.search(r"log loss +│ 0.123 +│ – ", shown)
    assert "fewer than 10 of these nodes in macro F1: Comedy (7), Opera (0)." in shown

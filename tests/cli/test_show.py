"""What is shown while a model is trained."""

import time

import pytest
import torch

from hanme.cli import show
from hanme.data import planted
from hanme.nn import HANME
from hanme.runs.describe import seconds_per_epoch
from hanme.training import Trainer, TrainingConfig, draw_weights


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    graph = planted(movies=100)
    model = HANME(
        graph.metadata(), "movie", graph.metapaths, len(graph.labels), hidden_channels=16, heads=2
    )
    draw_weights(model, graph, seed=1)
    return Trainer(model, graph, TrainingConfig(recipe="paper", epochs=4))


def test_the_second_epoch_is_known_by_its_parts(
    trainer: Trainer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "LINE_SECONDS", 0.01)
    with show.show_epochs() as shown:
        shown.plan("planted", 4)
        assert str(shown) == "0 s: loading"
        shown.on_start(["What it costs"])
        assert str(shown) == "0 s: preparing"
        shares = []

        def on_epoch(epoch) -> None:
            shares.append(shown.share)
            shown.on_epoch(epoch)

        trainer.run(on_epoch)
        time.sleep(0.1)
        shown.on_finalize()
        assert "fitting the linear part" in str(shown)
    assert shares == [0, 1, 1, 1]
    said = capsys.readouterr().err
    assert "What it costs\n" in said
    assert "4 of 4 epochs  loss " in said
    assert "\x1b" not in said


def test_an_epoch_is_estimated_and_nothing_is_left_of_it(trainer: Trainer) -> None:
    model, before = trainer.model, torch.get_rng_state()
    weights = [parameter.clone() for parameter in model.parameters()]
    assert 0 < seconds_per_epoch(model, trainer.graph) < 60
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("decided", "said"),
    [
        ((50.0, 50.0), ""),
        ((30.0, 5.0), "does not beat majority. It is no better than"),
        ((30.0, 45.0), "has a smaller micro F1 than majority: thresholds"),
        ((44.0, 43.0), "does not beat linear. Use --model linear"),
    ],
)
def test_a_model_that_does_not_win_is_said_so(
    decided: tuple[float, float], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def f1(micro: float, macro: float) -> dict[str, dict[str, float]]:
        return {part: {"micro": micro, "macro": macro} for part in ("train", "val", "test")}

    baselines = {"majority": f1(40, 6), "linear": f1(45, 44)}
    scores = {"decided": f1(*decided), "with_fallback": f1(1, 1)}
    show.print_baselines("hanme", {"scores": scores, "baselines": baselines})
    shown = " ".join(capsys.readouterr().out.split())
    assert said in shown
    assert ("does not beat" in shown or "smaller" in shown) == bool(said)

"""What is shown while a model is trained."""

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


def test_a_line_per_epoch_where_output_is_piped(
    trainer: Trainer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "LINE_SECONDS", 0.0)
    with show.show_epochs() as shown:
        shown.plan("planted", 4)
        trainer.run(shown.on_epoch)
        shown.on_finalize()
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said[:4]] == [f"Epoch {i} of 4" for i in range(1, 5)]
    assert "loss " in said[0]
    assert said[4] == "Fitting the linear part and the thresholds"


def test_an_epoch_is_estimated_and_nothing_is_left_of_it(trainer: Trainer) -> None:
    model, before = trainer.model, torch.get_rng_state()
    weights = [parameter.clone() for parameter in model.parameters()]
    assert 0 < seconds_per_epoch(model, trainer.graph) < 60
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("loss", "auc", "said"),
    [
        (0.3, 0.8, ""),
        (0.6, 0.5, "No better than always predicting the most common label"),
        (0.6, 0.8, ""),  # the probabilities are off, but their order is not
        (0.41, 0.7, "No better than --model linear, which is faster"),
    ],
)
def test_a_model_that_does_not_win_is_said_so(
    loss: float, auc: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def by_part(loss: float, auc: float) -> dict[str, dict[str, float]]:
        f1 = {"micro": 90.0, "macro": 50.0}
        return {part: {**f1, "log_loss": loss, "roc_auc": auc} for part in ("val", "test")}

    baselines = {"majority": by_part(0.5, 0.5), "linear": by_part(0.4, 0.75)}
    own = by_part(loss, auc)
    result = {"scores": {"decided": own}, "probabilities": own, "baselines": baselines}
    result["scores"]["with_fallback"] = own
    show.print_baselines("hanme", result)
    shown = " ".join(capsys.readouterr().out.split())
    assert said in shown
    assert ("validation nodes." in shown) == bool(said)

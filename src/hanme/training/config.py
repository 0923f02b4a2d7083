"""How a model is trained: every setting with its default, range and description."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from hanme.common.options import Closed
from hanme.decision import RULES, Decision
from hanme.training.schedule import LTS

Recipe = Literal["default", "paper"]

PAPER: dict[str, Any] = {
    "epochs": 200,
    "patience": 100,
    "every": 1,
    "lr": 0.005,
    "optimizer": "adam",
    "weight_decay": 0.001,
    "start": "drawn",
    "select": "macro",
    "decide": "fallback",
    "linear": False,
    "trees": False,
    "smoothing": False,
    "refit": False,
}
"""The defaults of ``recipe = "paper"``, where they differ from those of the fields."""

RETIRED = {"folds": 0, "fold": None, "smooth": 1}
"""Fields of earlier runs, which open if these have their defaults."""


class TrainingConfig(Closed):
    """How a model is trained.

    ``hanme train``, :class:`~hanme.Classifier` and configuration files share these defaults.
    """

    recipe: Recipe = Field(
        default="default",
        description="Where unset fields come from. default: the defaults listed here, a linear "
        "part stacked with the network, calibrated; paper: the network alone, as in the paper.",
    )
    seed: int = Field(
        default=0, ge=0, lt=2**63, description="Seed of the split, the weights and the dropout."
    )
    epochs: int = Field(default=100, ge=1, le=10**9, description="Maximum number of epochs.")
    patience: int = Field(
        default=15,
        ge=1,
        le=10**9,
        description="Stop after this number of epochs without a better validation score. With LTS, "
        "counting starts at the epoch that trains on all nodes.",
    )
    batch_size: int | None = Field(
        default=None,
        ge=1,
        lt=2**31,
        description="Number of nodes per training step, over all processes; only their "
        "neighbourhood is read. Default: one step per epoch on the whole graph.",
    )
    every: int = Field(
        default=4,
        ge=1,
        le=10**9,
        description="Score training and validation nodes after every this number of epochs; the "
        "best epoch is one of these.",
    )
    lr: float = Field(default=0.01, gt=0, le=1e30, description="Learning rate.")
    optimizer: Literal["adam", "adamw"] = Field(default="adamw", description="Optimizer.")
    weight_decay: float = Field(
        default=0.05, ge=0, le=1e30, description="Weight decay of the optimizer."
    )
    select: Literal["macro", "micro", "loss", "last"] = Field(
        default="loss",
        description="Criterion for the best epoch: macro F1, micro F1 or loss on validation "
        "nodes; last: keep the last epoch.",
    )
    start: Literal["drawn", "odds"] = Field(
        default="odds",
        description="Initial last layer. drawn: random; odds: bias at the log odds of the labels, "
        "small weights.",
    )
    decide: str = Field(
        default="macro",
        description="Rule from probabilities to labels where nodes have several, or one of two. "
        "micro, macro: maximise the expected F1; half: every label over 0.5 (HGB); fallback: the "
        "same, but at least the most likely label (the paper); or the name of a plug-in.",
    )
    cost: str | None = Field(
        default=None,
        description="Predict the label of the least expected cost instead, such as "
        "'missed fraud=50, false alarm=1'. A label that is not named costs as much as a false "
        "alarm.",
    )
    linear: bool = Field(
        default=True,
        description="Fit a linear model; hanme is stacked with it, and for other models it is a "
        "baseline.",
    )
    trees: bool = Field(
        default=True,
        description="Stack the linear model with boosted trees over the nodes' own columns and "
        "aggregates of linked rows.",
    )
    smoothing: bool = Field(
        default=True,
        description="Smooth the predictions of linear model and trees over the graph; not in "
        "batches.",
    )
    refit: bool = Field(
        default=True,
        description="Refit linear model and trees to training and validation nodes once everything "
        "is chosen.",
    )
    blocks: list[str | dict[str, Any]] = Field(
        default_factory=list,
        description="Feature block that the linear model considers beside its own: the name of a "
        'plug-in. A table has options: {name = "degrees", log = true}.',
    )
    callbacks: list[str | dict[str, Any]] = Field(
        default_factory=list,
        description="Callback of the network's training: mlflow, tensorboard, or the name of a "
        'plug-in. A table has options: {name = "tensorboard", folder = "events"}.',
    )
    lts: LTS | None = Field(
        default=None,
        description="Loss-aware training schedule. Unless it says otherwise, it reaches all nodes "
        "after half of the epochs, in the second at the earliest and in the 100th at the latest.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        """Fill in the fields of the paper's recipe, and when LTS reaches all nodes."""
        if not isinstance(values, dict):
            return values
        values = {k: v for k, v in values.items() if RETIRED.get(k, ...) != v}
        if values.get("recipe") == "paper":
            values = PAPER | values
        lts = values.get("lts")
        if isinstance(lts, LTS):
            lts = lts.model_dump(exclude_unset=True)
        if isinstance(lts, dict) and lts.get("pace") == "none":
            return values | {"lts": None}
        epochs = values.get("epochs", cls.model_fields["epochs"].default)
        if isinstance(lts, dict) and isinstance(epochs, int | float):
            return values | {"lts": {"until": min(LTS().until, max(2, int(epochs // 2))), **lts}}
        return values

    @field_validator("decide")
    @classmethod
    def _known_rule(cls, decide: str) -> str:
        RULES.find(decide)
        return decide

    @property
    def plain(self) -> Decision:
        """The rule without thresholds, for scores before these are known."""
        return Decision(rule="half" if self.decide == "half" else "fallback")

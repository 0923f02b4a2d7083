"""How a model is trained."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hanme.decision import Decision, Rule
from hanme.training.schedule import LTS

Recipe = Literal["default", "paper"]
RECIPES: dict[str, dict[str, Any]] = {
    "paper": {},
    "default": {
        "epochs": 100,
        "patience": 15,
        "every": 4,
        "lr": 0.01,
        "optimizer": "adamw",
        "weight_decay": 0.05,
        "start": "odds",
        "select": "loss",
        "decide": "macro",
        "linear": True,
        "trees": True,
        "smoothing": True,
        "refit": True,
    },
}
"""What a recipe sets; a field that is given overrides it."""


class TrainingConfig(BaseModel):
    """How a model is trained; the defaults are the paper's.

    Args:
        recipe: Where unset fields come from: ``"paper"``, or ``"default"``, which ``hanme train``
            and :class:`~hanme.Classifier` use (docs/learning.md).
        seed: Draws the validation nodes, the weights and the dropout.
        epochs: At most so many.
        patience: Stop after so many epochs without a better validation score, counted from the
            epoch on at which LTS has come to all nodes.
        batch_size: Train on so many nodes at a time, over all processes together, and read only
            what they touch (default: one step an epoch, on the whole graph).
        every: Score training and validation nodes after every so many epochs; the best epoch is one
            of these.
        lr: The optimizer's step size.
        optimizer: ``"adam"``, or ``"adamw"``, whose weight decay does not go through the gradient.
        weight_decay: The optimizer's weight decay.
        start: How the last layer begins: ``"drawn"`` as its other weights, or ``"odds"``: its bias
            at the labels' log odds and its weights small.
        select: What chooses the best epoch: the validation nodes' macro or micro F1, or their loss
            (with LTS from the epoch on at which it has come to all nodes); or ``"last"``, which
            chooses none and keeps the weights of the last epoch.
        smooth: Average so many of these scores, up to that of the epoch it chooses; 1 is the
            paper's.
        decide: The rule from logits to labels, see :class:`~hanme.decision.Decision`.
        wide: Give the model a wide part, if it takes one, see :func:`~hanme.training.choose_wide`.
        trees: Give the wide part trees over a node's own features, if these are few; not in
            batches.
        beliefs: Let the wide part read what it believes of other nodes along metapaths, where that
            helps on validation nodes; not in batches.
        refit: Fit the wide part to validation nodes too, once everything is chosen.
        folds: Cross-fitting: divide the labelled nodes outside the test part into so many folds,
            train a model without each and validate it there, and predict their mean; 0 for none.
        fold: Train the model without this fold alone, from 1 on.
        labels: Let the wide part read the labels of other nodes along metapaths.
        lts: The loss-aware training schedule, or None. Where it does not say so itself, it comes to
            all nodes half way, and no later than after the paper's 100 epochs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: Recipe = "paper"
    seed: int = Field(default=483, ge=0, lt=2**63)
    epochs: int = Field(default=200, ge=1, le=10**9)
    patience: int = Field(default=100, ge=1, le=10**9)
    batch_size: int | None = Field(default=None, ge=1, lt=2**31)
    every: int = Field(default=1, ge=1, le=10**9)
    lr: float = Field(default=0.005, gt=0, le=1e30)
    optimizer: Literal["adam", "adamw"] = "adam"
    weight_decay: float = Field(default=0.001, ge=0, le=1e30)
    select: Literal["macro", "micro", "loss", "last"] = "macro"
    smooth: int = Field(default=1, ge=1, le=10**9)
    start: Literal["drawn", "odds"] = "drawn"
    decide: Rule = "fallback"
    linear: bool = False
    trees: bool = False
    smoothing: bool = False
    refit: bool = False
    folds: int = Field(default=0, ge=0, le=100)
    fold: int | None = Field(default=None, ge=1)
    lts: LTS | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_recipe(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = dict(values)
        if isinstance(fallback := values.pop("fallback", None), bool):  # runs before 0.3
            values.setdefault("decide", "fallback" if fallback else "half")
        return RECIPES.get(str(values.get("recipe", "paper")), {}) | values

    @model_validator(mode="after")
    def _two_folds(self) -> TrainingConfig:
        if self.folds == 1:
            raise ValueError("one fold leaves nothing to train on: 2 or more, or 0 for none")
        if self.fold is not None and self.fold > self.folds:
            raise ValueError(f"fold {self.fold} of {self.folds}")
        return self

    @property
    def cross_fitted(self) -> bool:
        """Whether this is a mean of models, one without each fold."""
        return self.folds > 0 and self.fold is None

    @property
    def plain(self) -> Decision:
        """The rule without thresholds, for scores before these are known."""
        return Decision(rule="half" if self.decide == "half" else "fallback")

    @model_validator(mode="before")
    @classmethod
    def _half_way(cls, values: Any) -> Any:
        lts = values.get("lts") if isinstance(values, dict) else None
        if isinstance(lts, LTS):
            lts = lts.model_dump(exclude_unset=True)
        if isinstance(lts, dict) and isinstance(epochs := values.get("epochs", 200), int | float):
            return values | {"lts": {"until": min(LTS().until, max(1, int(epochs // 2))), **lts}}
        return values

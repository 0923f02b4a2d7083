"""How a model is trained."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hanme.training.schedule import LTS


class TrainingConfig(BaseModel):
    """How a model is trained; the defaults are the paper's.

    Args:
        seed: Draws the validation nodes, the weights and the dropout.
        epochs: At most so many.
        patience: Stop after so many epochs without a better validation score, counted from the
            epoch on at which LTS has come to all nodes.
        every: Score training and validation nodes after every so many epochs; the best epoch is one
            of these.
        lr: Adam's step size.
        weight_decay: Adam's weight decay.
        select: What chooses the best epoch: the validation nodes' macro or micro F1, or their loss
            (with LTS from the epoch on at which it has come to all nodes); or ``"last"``, which
            chooses none and keeps the weights of the last epoch.
        smooth: Average so many of these scores, up to that of the epoch it chooses; 1 is the
            paper's.
        fallback: Give a node with no label over 0.5 its most likely one.
        lts: The loss-aware training schedule, or None. Where it does not say so itself, it comes to
            all nodes half way, and no later than after the paper's 100 epochs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(default=483, ge=0, lt=2**63)
    epochs: int = Field(default=200, ge=1)
    patience: int = Field(default=100, ge=1)
    every: int = Field(default=1, ge=1)
    lr: float = Field(default=0.005, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.001, ge=0, allow_inf_nan=False)
    select: Literal["macro", "micro", "loss", "last"] = "macro"
    smooth: int = Field(default=1, ge=1)
    fallback: bool = True
    lts: LTS | None = None

    @model_validator(mode="before")
    @classmethod
    def _half_way(cls, values: Any) -> Any:
        lts = values.get("lts") if isinstance(values, dict) else None
        if isinstance(lts, LTS):
            lts = lts.model_dump(exclude_unset=True)
        if isinstance(lts, dict) and isinstance(epochs := values.get("epochs", 200), int | float):
            return values | {"lts": {"until": min(LTS().until, max(1, int(epochs // 2))), **lts}}
        return values

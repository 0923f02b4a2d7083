"""What a run is made of, as it stands in its ``config.json``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hanme.datasets import default_features
from hanme.errors import HanmeError
from hanme.nn import MODELS
from hanme.options import check_options
from hanme.training.schedule import LTS


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(_Part):
    """A graph: its name, where its files are, what features types without any get, options; and
    the seed that draws the validation nodes, and a planted graph: by default the run's."""

    name: str
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    source: str | None = None
    features: Literal["mean", "onehot", "given", "given-onehot"]
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _usual_features(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("features") is None:
            return values | {"features": default_features(str(values.get("name", "")))}
        return values


class ModelConfig(_Part):
    """A model of ``hanme.nn.MODELS`` and its options: the keyword arguments of its class.

    Names and types are checked here against the model's signature, whose defaults are filled in;
    the model checks the ranges when it is built.
    """

    name: str = "hanme"
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> ModelConfig:
        if self.name not in MODELS:
            raise HanmeError(f"unknown model {self.name!r}; there are {', '.join(MODELS)}")
        given = ("metadata", "target", "out_channels", "in_channels")  # they follow from the graph
        options = check_options(f"model {self.name}", MODELS[self.name], self.options, given)
        self.options.update(options)
        return self


class TrainingConfig(_Part):
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


class RunConfig(_Part):
    """All of it."""

    data: DataConfig
    model: ModelConfig
    training: TrainingConfig = TrainingConfig()

    @classmethod
    def make(cls, values: dict[str, Any], where: str = "configuration") -> RunConfig:
        """Checks values; a mistake raises one line that names the field."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            if isinstance(own := first.get("ctx", {}).get("error"), HanmeError):
                raise HanmeError(f"{where}: {own}") from None
            field = ".".join(str(part) for part in first["loc"]) or "all of it"
            raise HanmeError(
                f"{where}: {field}: {first['msg']}, but got {first['input']!r}"
            ) from None

    def differences(self, other: RunConfig) -> list[str]:
        """What another configuration has otherwise, as ``field: mine, other``."""
        mine, theirs = _flat(self.model_dump()), _flat(other.model_dump())
        return [
            f"{key}: {mine.get(key)}, {theirs.get(key)}"
            for key in sorted(mine.keys() | theirs.keys())
            if mine.get(key) != theirs.get(key)
        ]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat

"""What a run is made of, as it stands in its ``config.json``."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from hanme.common.options import Closed, check_options, validated
from hanme.data import default_features
from hanme.errors import HanmeError
from hanme.graph.features import Features
from hanme.nn import MODELS
from hanme.training import TrainingConfig

LINEAR = "linear"
"""The model without a network: linear model and trees, stacked and smoothed."""

PYTHON = "python"
"""What a configuration calls a graph that was made in Python and cannot be loaded by name."""


class DataConfig(Closed):
    """Which graph to load, see :func:`hanme.data.load`; the seed is by default the run's."""

    name: str
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    source: str | None = None
    features: Features
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _usual_features(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("features") is None:
            return values | {"features": default_features(str(values.get("name", "")))}
        return values


class ModelConfig(Closed):
    """A model of ``hanme.nn.MODELS`` and its options: the keyword arguments of its class.

    Names and types are checked here against the model's signature, whose defaults are filled in;
    the model checks the ranges when it is built.
    """

    name: str = "hanme"
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> ModelConfig:
        if self.name == LINEAR and not self.options:
            return self
        if self.name not in MODELS:
            names = ", ".join([*MODELS, LINEAR])
            raise HanmeError(f"unknown model {self.name!r}; there are {names}")
        given = ("metadata", "target", "out_channels", "in_channels")  # they follow from the graph
        options = check_options(f"model {self.name}", MODELS[self.name], self.options, given)
        self.options.update(options)
        return self


class RunConfig(Closed):
    """All of it."""

    data: DataConfig
    model: ModelConfig
    training: TrainingConfig = TrainingConfig()

    @classmethod
    def make(cls, values: dict[str, Any], where: str = "configuration") -> RunConfig:
        """Check values; a mistake raises one line that names the field."""
        return validated(cls, values, where)

    def of_fold(self, fold: int) -> RunConfig:
        """Return the configuration of the model without a fold."""
        return self.model_copy(update={"training": self.training.model_copy(update={"fold": fold})})

    def differences(self, other: RunConfig) -> list[str]:
        """Return what another configuration has otherwise, as ``field: mine, other``."""
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

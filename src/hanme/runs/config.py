"""The configuration of a run, as in its ``config.json`` and in configuration files."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field, model_validator

from hanme.common.options import (
    DEEPEST,
    Closed,
    Option,
    call_options,
    check_options,
    class_options,
    validated,
)
from hanme.data import default_features
from hanme.errors import HanmeError
from hanme.graph.features import Features
from hanme.nn import ENCODERS, MODELS
from hanme.nn.channels import MetapathChannels
from hanme.runs.reviewed import ReviewedLabel
from hanme.training import LTS, TrainingConfig

LINEAR = "linear"
"""The model without a network: linear model and trees, stacked and smoothed."""

PYTHON = "python"
"""``data.name`` of a graph that was made in Python and cannot be loaded by name."""

OF_GRAPH = ("metadata", "target", "out_channels", "in_channels", "edge_dim")
"""Arguments of a model that follow from the graph: they are no options."""


class DataConfig(Closed):
    """The graph to load, see :func:`hanme.data.load`."""

    name: str = Field(
        description="planted, IMDB, ACM, DBLP, a graph.toml, a folder with one, or a stored graph."
    )
    seed: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="Seed of the split. Default: the seed of the training.",
    )
    source: str | None = Field(
        default=None,
        description="Folder or archive with the files of a benchmark graph. Default: the folder "
        "in HANME_DATA; without one they are downloaded.",
    )
    features: Features = Field(
        default="given",
        description="Features of node types other than the target. given: those in the data, the "
        "mean of the neighbours' for types without any; mean: the mean of the neighbours', "
        "starting from the target; onehot: ids; given-onehot: those in the data, ids for types "
        "without any; names: the words of their names.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options of the generated graph planted."
    )
    reviewed: dict[str, ReviewedLabel] = Field(
        default_factory=dict,
        description="Labels that replace those of the data, by id; hanme train --with reads them "
        "from a file.",
    )

    @model_validator(mode="before")
    @classmethod
    def _keep_stored_features(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("features") is None:
            return values | {"features": default_features(str(values.get("name", "")))}
        return values


class ModelConfig(Closed):
    """A model of ``hanme.nn.MODELS`` and its options: the keyword arguments of its class.

    Names and types are checked here against the model's signature, whose defaults are filled in;
    the model checks the ranges when it is built.
    """

    name: str = Field(default="hanme", description=f"Model: {', '.join([*MODELS, LINEAR])}.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options of the model: its keyword arguments."
    )

    @model_validator(mode="after")
    def _complete(self) -> ModelConfig:
        if self.name == LINEAR and not self.options:
            return self
        if self.name not in MODELS:
            names = ", ".join([*MODELS, LINEAR])
            raise HanmeError(
                f"unknown model {self.name!r}; there are {names}; if a plug-in provides it, "
                "install its package"
            )
        options = check_options(f"model {self.name}", MODELS[self.name], self.options, OF_GRAPH)
        self.options.update(options)
        return self


class RunConfig(Closed):
    """The graph, the model and how it is trained."""

    data: DataConfig
    model: ModelConfig
    training: TrainingConfig = TrainingConfig()

    @classmethod
    def make(cls, values: dict[str, Any], where: str = "configuration") -> RunConfig:
        """Check values; a mistake raises one line that names the field."""
        return validated(cls, values, where)

    def differences(self, other: RunConfig) -> list[str]:
        """Return the fields in which another configuration differs, as ``field: mine, other``."""
        mine, theirs = _flat(self.model_dump()), _flat(other.model_dump())
        return [
            f"{key}: {mine.get(key)}, {theirs.get(key)}"
            for key in sorted(mine.keys() | theirs.keys())
            if mine.get(key) != theirs.get(key)
        ]


def describe_field(path: str) -> Option:
    """Describe a field such as ``training.lr`` or, of HAN-ME, ``model.options.heads``."""
    table, _, name = path.rpartition(".")
    if table == "model.options":
        return model_options("hanme")[name]
    kinds: dict[str, type[BaseModel]] = {
        "data": DataConfig,
        "model": ModelConfig,
        "training": TrainingConfig,
        "training.lts": LTS,
    }
    return class_options(kinds[table])[name]


def model_options(model: str) -> dict[str, Option]:
    """Describe the options of a model; ``hanme`` passes more of them to its encoders.

    An argument that a model does not describe itself means the same as HAN-ME's.
    """
    if model == LINEAR:
        return {}
    options = call_options(MODELS[model])
    sources: list[Callable[..., Any]] = [MODELS["hanme"], MetapathChannels]
    sources += ENCODERS.builtin.values()
    for name, option in [item for source in sources for item in call_options(source).items()]:
        if name in options and not options[name].description:
            options[name] = replace(options[name], description=option.description)
        elif model == "hanme" and option.default is not ...:
            options.setdefault(name, option)
    return {name: option for name, option in options.items() if name not in OF_GRAPH}


def override(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with new values in fields such as ``model.options.heads``."""
    changed = copy.deepcopy(dict(values))
    for field, value in changes.items():
        *tables, key = field.split(".")
        if len(tables) > DEEPEST:
            raise HanmeError(f"{field[:50]}...: no field is nested {len(tables)} deep")
        place = changed
        for table in tables:
            inner = place.setdefault(table, {})
            if not isinstance(inner, dict):
                raise HanmeError(f"{field}: {table} is a value, not a table")
            place = inner
        place[key] = value
    return changed


def look_up(values: Mapping[str, Any], field: str) -> Any:
    """Return the value of a field such as ``training.lr``, None if it is not set."""
    value: Any = values
    for key in field.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat

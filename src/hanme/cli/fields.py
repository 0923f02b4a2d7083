"""Options generated from the configuration classes: type, default and help are declared there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import reduce, wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import typer

if TYPE_CHECKING:
    from hanme.common.options import Option

F = TypeVar("F", bound=Callable[..., None])
Panels = Mapping[str, Mapping[str, str]]
"""By panel of the help: fields such as ``training.lr`` with the names of their options."""


def takes_fields(panels: Panels) -> Callable[[F], F]:
    """Give a command an option per field; it receives their values as ``**fields``."""

    def mark(function: F) -> F:
        function.panels = panels  # type: ignore[attr-defined]
        return function

    return mark


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Complete the signature of a command by the options of its fields.

    Done when the command is used: the configuration classes import torch, which takes seconds.
    """
    panels: Panels = getattr(function, "panels", {})
    signature = inspect.signature(function, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    generated = [
        _parameter(field, names, panel)
        for panel in panels
        for field, names in panels[panel].items()
    ]

    @wraps(function)
    def command(**values: Any) -> None:
        function(**values)

    whole = signature.replace(parameters=own + generated)
    command.__signature__ = whole  # type: ignore[attr-defined]
    return command


def chosen(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that were set on the command line, by field."""
    return {name.replace("__", "."): value for name, value in fields.items() if value is not None}


def _parameter(field: str, names: str, panel: str) -> inspect.Parameter:
    """Return the parameter of a command for a field; its name is the field, ``.`` as ``__``."""
    from hanme.runs.config import describe_field

    described = describe_field(field)
    kind = _value_type(described.type)
    option = typer.Option(
        *names.split(),
        help=described.description + " Repeat it for more than one." * (kind == list[str]),
        show_default=_default(field, described),
        metavar="|".join(described.choices) or None,
        rich_help_panel=None if panel == "Options" else panel,
    )
    return inspect.Parameter(
        field.replace(".", "__"),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _default(field: str, described: Option) -> str | bool:
    """Return the default as shown in the help, False if there is none to show."""
    from hanme.training import LTS, Recipe, TrainingConfig

    if field == "training.lts.pace":
        return "none"
    if not field.startswith("training."):
        return False if described.default in (None, ...) else str(described.default)
    path = field.split(".")[1:]
    default, paper = (
        reduce(getattr, path, TrainingConfig(recipe=recipe, lts=LTS()))
        for recipe in get_args(Recipe)
    )
    if default is None:
        return False
    if default == paper or field == "training.recipe":
        return str(default)
    return f"{default}; paper: {paper}"


def _value_type(annotation: Any) -> Any:
    """Return the type of an option's value; the configuration class checks choices and ranges."""
    kinds = [annotation, *get_args(annotation)]
    if any(get_origin(kind) in (list, Sequence) for kind in kinds):
        return list[str]
    return next((kind for kind in (bool, int, float) if kind in kinds), str)

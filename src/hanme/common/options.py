"""Options: described by a pydantic class or by a signature and its docstring, and checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from hanme.errors import HanmeError

M = TypeVar("M", bound=BaseModel)


class Closed(BaseModel):
    """An immutable pydantic class without undeclared fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Option:
    """An option as users see it: in help texts and reference pages."""

    name: str
    type: Any  # its annotation
    default: Any  # ``...`` if it has none
    description: str
    limits: str = ""  # such as "≥ 1"

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a Literal type."""
        kinds = (self.type, *get_args(self.type))
        return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())


SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}

LARGEST_SHOWN = 10**6
"""Limits beyond it only keep numbers representable; help does not mention them."""


def class_options(kind: type[BaseModel]) -> dict[str, Option]:
    """Describe the fields of a pydantic class."""
    options = {}
    for name, info in kind.model_fields.items():
        bounds = [(SIGNS[k], getattr(r, k)) for r in info.metadata for k in SIGNS if hasattr(r, k)]
        limits = [f"{sign} {bound:g}" for sign, bound in bounds if abs(bound) <= LARGEST_SHOWN]
        default = ... if info.is_required() else info.get_default(call_default_factory=True)
        about = info.description or ""
        options[name] = Option(name, info.annotation, default, about, ", ".join(limits))
    return options


def call_options(function: Callable[..., Any]) -> dict[str, Option]:
    """Describe the arguments of a function or class by its signature and Google docstring."""
    try:
        hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except NameError:  # a type that is imported for type checkers only
        hints = {}
    section = (inspect.getdoc(function) or "").partition("Args:\n")[2]
    described = {
        name: re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", " ".join(text.split()))
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", section, re.MULTILINE)
    }
    return {
        name: Option(
            name,
            hints.get(name, Any),
            ... if parameter.default is parameter.empty else parameter.default,
            described.get(name, "").replace("`", "").replace('"', ""),
        )
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def check_options(
    what: str, function: Callable[..., Any], options: Mapping[str, Any], own: Sequence[str] = ()
) -> dict[str, Any]:
    """Check names and types of options; return them completed with the defaults.

    The options are the keyword arguments of a function or class, except ``own``, which the caller
    passes. The function itself checks ranges. ``what`` names it, such as ``"model han"``.
    """
    known = {name: o for name, o in call_options(function).items() if name not in own}
    parameters = inspect.signature(function).parameters.values()
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    strict = ConfigDict(arbitrary_types_allowed=True, strict=True)
    for name, value in options.items():
        if name in own or (name not in known and not open_ended):
            raise HanmeError(f"{what} has no option {name!r}; it has {', '.join(known) or 'none'}")
        if name in known:
            try:
                TypeAdapter(known[name].type, config=strict).validate_python(value)
            except ValidationError as error:
                why = error.errors()[0]["msg"]
                raise HanmeError(f"{what}: {name}: {why}, but got {value!r}") from None
    for name, option in known.items():
        if option.default is ... and name not in options:
            raise HanmeError(f"{what}: {name} is missing")
    return {name: o.default for name, o in known.items() if o.default is not ...} | dict(options)


def validated(kind: type[M], values: Any, where: str) -> M:
    """Check values against a pydantic model; a mistake raises one line that names the field."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(own := first.get("ctx", {}).get("error"), HanmeError):
            raise HanmeError(f"{where}: {own}") from None
        field = ".".join(map(str, first["loc"])) or "the table"
        got = "" if first["type"] == "missing" else f", but got {first['input']!r}"
        raise HanmeError(f"{where}: {field}: {first['msg']}{got}") from None


DEEPEST = 50
"""Maximum nesting of values; no option needs more than five, and parsers recurse."""


def refuse_deep(value: Any, where: str) -> None:
    """Refuse lists and tables that are nested deeper than ``DEEPEST``."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    if level:
        raise HanmeError(f"{where}: values are nested more than {DEEPEST} deep")

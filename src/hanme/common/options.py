"""Check options against the signature of the function that takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from hanme.errors import HanmeError

M = TypeVar("M", bound=BaseModel)


class Closed(BaseModel):
    """Values that cannot be changed, and none but those declared."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def check_options(
    what: str, function: Callable[..., Any], options: Mapping[str, Any], own: Sequence[str] = ()
) -> dict[str, Any]:
    """Check names and types of options; the function itself checks ranges.

    Args:
        what: What messages call the function, such as ``"model han"``.
        function: A function or a class; its keyword arguments are the options.
        options: The options.
        own: Arguments that are not options because the caller gives them.

    Returns:
        The options, with the defaults of those not given.
    """
    parameters = inspect.signature(function).parameters
    known = {
        name: parameter
        for name, parameter in parameters.items()
        if name not in own and parameter.kind is not parameter.VAR_KEYWORD
    }
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    hints = _hints(function)
    for name, value in options.items():
        if name in own or (name not in known and not open_ended):
            raise HanmeError(f"{what} has no option {name!r}; it has {', '.join(known) or 'none'}")
        if name in known and name in hints:
            _check_type(f"{what}: {name}", hints[name], value)
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in options:
            raise HanmeError(f"{what}: {name} is missing")
    defaults = {k: p.default for k, p in known.items() if p.default is not p.empty}
    return {**defaults, **options}


def validated(kind: type[M], values: Any, where: str) -> M:
    """Check values against a pydantic model; a mistake raises one line that names the field."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(own := first.get("ctx", {}).get("error"), HanmeError):
            raise HanmeError(f"{where}: {own}") from None
        field = ".".join(map(str, first["loc"])) or "all of it"
        got = "" if first["type"] == "missing" else f", but got {first['input']!r}"
        raise HanmeError(f"{where}: {field}: {first['msg']}{got}") from None


DEEPEST = 50
"""How deep values may be nested: nothing that is meant needs more."""


def refuse_deep(value: Any, where: str) -> None:
    """Refuse lists and tables that are nested deeper than anything is meant to be."""
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


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except NameError:  # a type that is imported for type checkers only
        return {}


def _check_type(where: str, hint: Any, value: Any) -> None:
    config = ConfigDict(arbitrary_types_allowed=True, strict=True)
    try:
        TypeAdapter(hint, config=config).validate_python(value)
    except ValidationError as error:
        raise HanmeError(f"{where}: {error.errors()[0]['msg']}, but got {value!r}") from None

"""The options of commands: from signatures, docstrings and the configuration classes.

Positional parameters of a command are arguments, keyword-only ones options; the section ``Args`` of
its docstring is their help. Options that several commands share are declared here, and options
that are fields of a configuration in its class.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import typer

from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.common.options import Option

Command = TypeVar("Command", bound=Callable[..., None])

NAMES = {
    "changes": "--set",
    "data.source": "--data",
    "model.name": "--model",
    "model.options.metapaths": "--metapath -m",
    "model.options.hidden_channels": "--hidden",
    "node": "--node -n",
    "out": "--out -o",
    "train": "--train/--no-train",
    "training.lts.pace": "--lts",
    "training.lts.start": "--lts-start",
    "training.lts.until": "--lts-until",
}
"""Options that are not named for their parameter or the last part of their field."""


class Range(NamedTuple):
    """The smallest and largest value of a number."""

    min: int | None = None
    max: int | None = None


Positive = Annotated[int, Range(1)]
Seed = Annotated[int, Range(0, 2**63 - 1)]


def _allow(paths: list[str] | None) -> list[str] | None:
    """Add paths to the environment, where worker processes find them, too."""
    from hanme.data.tables.read.sources import ALLOW

    if paths:
        before = [text for text in [os.environ.get(ALLOW, "")] if text]
        os.environ[ALLOW] = os.pathsep.join([*before, *map(os.path.abspath, paths)])
    return paths


def _choose_device(name: str | None) -> str | None:
    from hanme.common import device

    return None if name is None else device.choose(name)


def _existing_folder(folder: Path | None) -> Path | None:
    if folder is not None and not folder.is_dir():
        raise HanmeError(f"{folder}: no such folder")
    return folder


@dataclass(frozen=True)
class Shared:
    """An option that several commands have."""

    help: str
    panel: str | None = None
    metavar: str | None = None
    callback: Callable[..., Any] | None = None


SHARED = {
    "graph": Shared("planted, IMDB, ACM, DBLP, a graph.toml or its folder, or a stored graph."),
    "run": Shared("Run folder (default: the latest in runs/)."),
    "node": Shared("Id or name of a target node."),
    "device": Shared(
        "cpu (default), cuda or cuda:1. GPUs are not measured.", callback=_choose_device
    ),
    "json_": Shared("Print JSON."),
    "changes": Shared(
        "Option of the model (layers=3) or field of the configuration (training.lr=0.01, "
        "data.options.movies=500).",
        "Configuration",
        "KEY=VALUE",
    ),
    "config_folder": Shared(
        "Folder of MODEL-GRAPH.toml files that replace the packaged ones.",
        "Configuration",
        callback=_existing_folder,
    ),
    "data": Shared("Folder or archive with a benchmark graph (default: HANME_DATA).", "Data"),
    "allow": Shared(
        "File or folder that a graph.toml may read outside of its own (default: HANME_ALLOW).",
        "Data",
        "PATH",
        _allow,
    ),
}


def takes_fields(**panels: str) -> Callable[[Command], Command]:
    """Give a command options for fields such as ``training.lr``, separated by spaces, by panel.

    It receives their values as ``**fields``.
    """

    def mark(function: Command) -> Command:
        function.panels = panels  # type: ignore[attr-defined]
        return function

    return mark


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command as Typer takes it, with all options in its signature.

    Done when the command is used: the configuration classes import torch, which takes seconds.
    """
    from hanme.common.options import call_options

    panels: Mapping[str, str] = getattr(function, "panels", {})
    described = call_options(function)
    signature = inspect.signature(function, eval_str=True)
    parameters = [
        _own(parameter, described[parameter.name])
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    parameters += [_of_field(field, panel) for panel in panels for field in panels[panel].split()]

    @wraps(function)
    def command(**values: Any) -> None:
        function(**values)

    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def help_of(function: Callable[..., None]) -> str:
    """Return the docstring of a command without the section on its arguments."""
    return (inspect.getdoc(function) or "").partition("\n\nArgs:")[0]


def option_names(parameter: str) -> list[str]:
    """Return the names of the option for a parameter or field."""
    last = parameter.rpartition(".")[2].rstrip("_").replace("_", "-")
    return NAMES.get(parameter, f"--{last}").split()


def chosen(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that were set on the command line, by field."""
    return {name.replace("__", "."): value for name, value in fields.items() if value is not None}


def _own(parameter: inspect.Parameter, described: Option) -> inspect.Parameter:
    """Return a parameter of a command with its argument or option."""
    shared = SHARED.get(parameter.name, Shared(""))
    kinds = [parameter.annotation, *get_args(parameter.annotation)]
    limits = next((k.__metadata__[0] for k in kinds if get_origin(k) is Annotated), Range())
    positional = parameter.kind is not parameter.KEYWORD_ONLY
    settings = limits._asdict() | {"help": described.description or shared.help}
    option: Any
    if positional:
        metavar = parameter.name.upper()
        option = typer.Argument(
            metavar=metavar, show_default=False, callback=shared.callback, **settings
        )
    else:
        settings["help"] += REPEAT * (get_origin(_value_type(described.type)) is list)
        option = typer.Option(
            *option_names(parameter.name),
            metavar="|".join(described.choices) or shared.metavar,
            rich_help_panel=shared.panel,
            callback=None if parameter.name == "graph" else shared.callback,
            **settings,
        )
    return parameter.replace(annotation=Annotated[described.type, option])


def _of_field(field: str, panel: str) -> inspect.Parameter:
    """Return the parameter for a field; its name is the field, ``.`` as ``__``."""
    from hanme.runs.config import describe_field

    described = describe_field(field)
    kind = _value_type(described.type)
    option = typer.Option(
        *option_names(field),
        help=described.description + REPEAT * (kind == list[str]),
        show_default=_default(field, described),
        metavar="|".join(described.choices) or None,
        rich_help_panel=None if panel == "Options" else panel,
    )
    name, keyword = field.replace(".", "__"), inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=Annotated[kind | None, option])


REPEAT = " Repeat it for more than one."


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


def find_run(run: Path | None) -> Path:
    """Return the run folder, by default the latest, which is then named on stderr."""
    if run is None:
        from hanme.runs import latest_run

        run = latest_run()
        print(f"Latest run: {run}", file=sys.stderr)
    return run


def changed_fields(changes: list[str] | None) -> dict[str, Any]:
    """Return the fields that ``--set`` changes; a value is JSON if possible, else text."""
    from hanme.common.options import refuse_deep

    fields: dict[str, Any] = {}
    for text in changes or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise HanmeError(f"--set {text}: write it as KEY=VALUE")
        field = key if "." in key else f"model.options.{key}"
        try:
            fields[field] = json.loads(value)
        except ValueError:
            fields[field] = value
        except RecursionError:
            raise HanmeError(f"--set {key}: values are nested too deep") from None
        refuse_deep(fields[field], f"--set {key}")
    return fields

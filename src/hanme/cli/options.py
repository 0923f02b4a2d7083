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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

import typer

from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.common.options import Option
    from hanme.graph import Graph

SUGGESTED = 5
"""Maximum number of similar names in the message about an unknown node."""

NAMES = {
    "changes": "--set",
    "data.source": "--data",
    "model.name": "--model",
    "model.options.metapaths": "--metapath -m",
    "model.options.hidden_channels": "--hidden",
    "node": "--node -n",
    "out": "--out -o",
    "training.blocks": "--block",
    "training.callbacks": "--callback",
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


SHARED: dict[str, dict[str, Any]] = {
    "graph": {"help": "planted, IMDB, ACM, DBLP, a graph.toml or its folder, or a stored graph."},
    "run": {"help": "Run folder (default: the latest in runs/)."},
    "node": {"help": "Id or name of a target node."},
    "device": {
        "help": "cpu (default), cuda or cuda:1. GPUs are not measured.",
        "callback": _choose_device,
    },
    "json_": {"help": "Print JSON."},
    "changes": {
        "help": "Option of the model (layers=3) or field of the configuration (training.lr=0.01, "
        "data.options.movies=500).",
        "rich_help_panel": "Configuration",
        "metavar": "KEY=VALUE",
    },
    "config_folder": {
        "help": "Folder of MODEL-GRAPH.toml files that replace the packaged ones.",
        "rich_help_panel": "Configuration",
        "exists": True,
        "file_okay": False,
    },
    "data": {
        "help": "Folder or archive with a benchmark graph (default: HANME_DATA).",
        "rich_help_panel": "Data",
    },
    "allow": {
        "help": "File or folder that a graph.toml may read outside of its own (default: "
        "HANME_ALLOW).",
        "rich_help_panel": "Data",
        "metavar": "PATH",
        "callback": _allow,
    },
}
"""Settings of the options that several commands have."""


FIELDS = {
    "train": {
        "Options": "model.name model.options.metapaths training.epochs training.batch_size "
        "model.options.per_root training.seed",
        "Model": "model.options.encoder model.options.hidden_channels model.options.heads "
        "model.options.dropout model.options.gamma model.options.values model.options.backend",
        "Training": "training.recipe training.patience training.lr training.weight_decay "
        "training.select training.decide training.cost training.lts.pace training.lts.start "
        "training.lts.until training.blocks training.callbacks",
        "Data": "data.features data.source",
    },
    "inspect": {"Options": "training.seed", "Data": "data.features data.source"},
    "audit": {"Options": "training.seed", "Data": "data.features data.source"},
}
"""Fields of the configuration that are options of a command, by panel of its help; the command
receives their values as ``**fields``."""


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command as Typer takes it, with all options in its signature.

    Done when the command is used: the configuration classes import torch, which takes seconds.
    """
    from hanme.common.options import call_options

    panels = FIELDS.get(function.__name__, {})
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
    kinds = [parameter.annotation, *get_args(parameter.annotation)]
    limits = next((k.__metadata__[0] for k in kinds if get_origin(k) is Annotated), Range())
    settings = SHARED.get(parameter.name, {}) | limits._asdict()
    settings["help"] = described.description or settings.get("help", "")
    option: Any
    if parameter.kind is not parameter.KEYWORD_ONLY:
        option = typer.Argument(metavar=parameter.name.upper(), show_default=False, **settings)
    else:
        settings["help"] += REPEAT * (_value_type(described.type) == list[str])
        if described.choices:
            settings["metavar"] = "|".join(described.choices)
        option = typer.Option(*option_names(parameter.name), **settings)
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
    from hanme.training import PAPER

    table, _, name = field.rpartition(".")
    if field == "training.lts.pace":
        return "none"
    if described.default in (None, ..., []) or field == "training.lts.until":
        return False
    paper = PAPER.get(name) if table == "training" else None
    return str(described.default) if paper is None else f"{described.default}; paper: {paper}"


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


@contextmanager
def suggest_names(graph: Graph) -> Iterator[None]:
    """Name similar target nodes in the message about an unknown one."""
    from hanme.graph.nodes import UnknownNode
    from hanme.serve.search import Search

    try:
        yield
    except UnknownNode as error:
        targets = graph.targets
        similar = Search({graph.target: targets}).find(error.text, [graph.target], SUGGESTED)
        pairs = [(targets.title(i), targets.identity(i)) for _, i in similar]
        names = [name if name == own else f"{name} ({own})" for name, own in pairs]
        raise HanmeError(f"{error}{'; similar: ' if names else ''}{', '.join(names)}") from None


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

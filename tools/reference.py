"""Add the reference of the command line and of configurations to the documentation.

A hook of MkDocs (mkdocs.yml) makes both pages from the declarations when the site is built. Run
``python tools/reference.py`` to print them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

from mkdocs.structure.files import File, Files
from pydantic import BaseModel

from hanme.cli import COMMANDS, Command
from hanme.common.options import Option, class_options
from hanme.nn import MODELS
from hanme.runs.config import DataConfig, ModelConfig, model_options
from hanme.training import LTS, PAPER, TrainingConfig

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig


def cli() -> str:
    """Return the reference of all commands."""
    lines = ["# Commands", ""]
    for function in COMMANDS:
        lines += [f"## hanme {function.__name__}", "", _prose(inspect.getdoc(function) or ""), ""]
        rows = [_option(parameter) for parameter in Command(function).build().params]
        lines += [*_table(("option", "default", "description"), rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def configuration() -> str:
    """Return the reference of the fields of a configuration and of the options of all models."""
    about = "Fields of a configuration file, of `config.json` in a run folder and of `--set`."
    lines = ["# Configuration", "", about, ""]
    tables: dict[str, type[BaseModel]] = {
        "data": DataConfig,
        "model": ModelConfig,
        "training": TrainingConfig,
        "training.lts": LTS,
    }
    for name, kind in tables.items():
        lines += [f"## [{name}]", "", *_fields(class_options(kind).values(), name), ""]
    for name in MODELS:
        title = f"## [model.options] of {name}"
        lines += [title, "", *_fields(model_options(name).values(), "model.options"), ""]
    return "\n".join(lines).rstrip() + "\n"


def _fields(options: Iterable[Option], table: str) -> list[str]:
    rows = []
    for option in options:
        default = "" if option.default in (..., None) else f"`{option.default}`"
        if table == "training" and option.name in PAPER:
            default += f" (paper: `{PAPER[option.name]}`)"
        values = ", ".join(f"`{choice}`" for choice in option.choices) or _kind(option.type)
        limits = f" {option.limits}" if option.limits else ""
        rows.append((f"`{option.name}`", values + limits, default, option.description))
    return _table(("field", "values", "default", "description"), rows)


def _kind(annotation: Any) -> str:
    """Return the name of a type as TOML has it."""
    kinds = [annotation, *get_args(annotation)]
    names = {bool: "boolean", int: "integer", float: "number", str: "text"}
    if any(get_origin(kind) is dict for kind in kinds) or LTS in kinds:
        return "table"
    if any(hasattr(get_origin(kind), "__iter__") for kind in kinds):
        return "list"
    return next((names[kind] for kind in names if kind in kinds), "")


def _option(parameter: Any) -> tuple[str, str, str]:
    names = [*parameter.opts, *parameter.secondary_opts]
    argument = parameter.param_type_name == "argument"
    shown = getattr(parameter, "show_default", False)
    default = shown if isinstance(shown, str) else parameter.default if shown else None
    values = f" {parameter.metavar}" if parameter.metavar and not argument else ""
    name = parameter.metavar if argument else ", ".join(names) + values
    text = str(parameter.help or "")
    if parameter.required:
        text += " Required."
    return f"`{name}`", "" if default in (None, False) else f"`{default}`", text


def _prose(docstring: str) -> str:
    """Return a docstring as Markdown: paragraphs that are commands become code."""
    paragraphs = docstring.split("\n\n")
    return "\n\n".join(f"    {p}" if p.startswith("hanme ") else p for p in paragraphs)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [list(heads), ["---"] * len(heads), *map(list, rows)]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


PAGES = {"reference/cli.md": cli, "reference/configuration.md": configuration}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the site."""
    for path, text in PAGES.items():
        files.append(File.generated(config, path, content=text()))
    return files


if __name__ == "__main__":
    print(cli(), configuration(), sep="\n")

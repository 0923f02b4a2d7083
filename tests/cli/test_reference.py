"""The generated reference has every option and every field."""

import runpy
from pathlib import Path

from hanme.cli import COMMANDS, Command
from hanme.common.options import class_options
from hanme.nn import MODELS
from hanme.training import TrainingConfig

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "reference.py"))


def test_every_option_of_every_command_is_described() -> None:
    pages = TOOL["cli"]().split("\n## hanme ")[1:]
    assert len(pages) == len(COMMANDS)
    for function, page in zip(COMMANDS, pages, strict=True):
        for parameter in Command(function).build().params:
            assert parameter.help, (function.__name__, parameter.name)
            if parameter.opts[0].startswith("--"):
                assert f"`{parameter.opts[0]}" in page


def test_every_field_and_model_option_is_described() -> None:
    page = TOOL["configuration"]()
    for option in class_options(TrainingConfig).values():
        assert f"| `{option.name}` |" in page
    for name in MODELS:
        assert f"## [model.options] of {name}\n" in page
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert not [row for row in rows if row.endswith("|  |")]  # none lacks a description

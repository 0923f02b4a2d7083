"""The command line: one file per command.

Commands import what they need when they run: torch takes seconds, --help should not.
"""

from __future__ import annotations

import os
import sys

import typer

from hanme.cli.benchmark import benchmark
from hanme.cli.evaluate import evaluate
from hanme.cli.explain import explain
from hanme.cli.init import init
from hanme.cli.inspect import inspect
from hanme.cli.options import NamesModels
from hanme.cli.predict import predict
from hanme.cli.reproduce import reproduce
from hanme.cli.show import printable
from hanme.cli.train import train
from hanme.cli.tune import tune
from hanme.errors import HanmeError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Classify the nodes of heterogeneous graphs by attending to whole metapath instances. "
    "Try it without any data: hanme train planted --out runs/first. With tables of your own: "
    "hanme init FOLDER",
)
app.command()(init)
app.command()(inspect)
app.command(cls=NamesModels)(train)
app.command()(evaluate)
app.command()(predict)
app.command()(explain)
app.command()(reproduce)
app.command()(benchmark)
app.command()(tune)

INTERRUPTED = 130  # what typer returns of a keyboard's interrupt


def main() -> None:
    """Runs a command; a user's mistake ends with one line and exit status 2."""
    try:
        status = app(standalone_mode=False)
    except HanmeError as error:
        sys.exit(_fail(str(error), 2))
    except typer.TyperException as error:  # wrong options; without a message, help has been shown
        message, context = error.format_message(), getattr(error, "ctx", None)
        where = f"; see {context.command_path} --help" if context else ""
        sys.exit(_fail(f"{message.removesuffix('.')}{where}", 2) if message else 2)
    except BrokenPipeError:  # the reader of a pipe has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        sys.exit(_fail("out of memory; smaller sizes or fewer metapaths would do", 2))
    except OSError as error:
        sys.exit(_fail(f"{error.filename or 'a file'}: {error.strerror or error}", 2))
    if status == INTERRUPTED:
        _fail("interrupted; train goes on with --resume, the others with the same command", status)
    sys.exit(status or 0)


def _fail(message: str, status: int) -> int:
    print(f"hanme: {printable(' '.join(message.split()))}", file=sys.stderr)
    return status

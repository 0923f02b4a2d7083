"""The command line: one file per command.

Commands import torch when they run, as it takes seconds: ``hanme --help`` must not wait for it.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from hanme import __version__
from hanme.cli.benchmark import benchmark
from hanme.cli.evaluate import evaluate
from hanme.cli.explain import explain
from hanme.cli.init import init
from hanme.cli.inspect import inspect
from hanme.cli.options import help_of, with_options
from hanme.cli.predict import predict
from hanme.cli.runs import runs
from hanme.cli.serve import serve
from hanme.cli.show import printable
from hanme.cli.train import train
from hanme.cli.tune import tune
from hanme.errors import INTERRUPTED, HanmeError

COMMANDS = (init, inspect, train, runs, predict, evaluate, explain, serve, benchmark, tune)
HELP = {"help_option_names": ["-h", "--help"]}
SHARED = ("train", "evaluate", "predict")
"""Commands that torchrun can share among processes."""
FAILED = 1
"""Status that Typer returns without a message, where it does not know the shell."""
STOPPED = 130
"""Status after a keyboard interrupt."""


class Command(TyperCommand):
    """A command whose options are built when it is used, see :func:`with_options`."""

    def __init__(self, function: Callable[..., None]) -> None:
        super().__init__(function.__name__, help=help_of(function))
        self.function = function

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        """Build the options and read the arguments of the command line."""
        return self.build().make_context(*arguments, **extra)

    def build(self) -> Any:
        """Return the command with its options."""
        alone = typer.Typer(add_completion=False, context_settings=HELP)
        alone.command(self.name, help=self.help)(with_options(self.function))
        return typer.main.get_command(alone)


class Commands(TyperGroup):
    """The commands of ``hanme``."""

    def __init__(self, **settings: Any) -> None:
        commands = {function.__name__: Command(function) for function in COMMANDS}
        super().__init__(**settings | {"commands": commands})

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands in the order in which a user meets them."""
        return list(self.commands)


app = typer.Typer(
    cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, context_settings=HELP
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"hanme {__version__}")
        raise typer.Exit


@app.callback()
def hanme(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Predict missing labels in related tables or heterogeneous graphs, and explain them.

    Without data of your own: hanme train planted, then hanme predict

    With your tables: hanme init FOLDER
    """
    if _under_torchrun() and context.invoked_subcommand not in SHARED:
        raise HanmeError(
            f"torchrun can share {', '.join(SHARED)} among processes; run hanme "
            f"{context.invoked_subcommand} without it"
        )


def main() -> None:
    """Run a command; report a user's mistake in one line, with exit status 2."""
    gc.set_threshold(100_000)  # imports create many objects, none of which can be collected
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show γ shows ?
    try:
        _refuse_empty(sys.argv)
        _refuse_undecodable([*sys.argv[1:], *_environment_paths()])
        with _joined():
            status = app(prog_name="hanme", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:  # before a command has started
        status = STOPPED
    except HanmeError as error:
        sys.exit(_fail(str(error), 2))
    except typer.TyperException as error:  # wrong options; no message if help has been shown
        message, context = error.format_message(), getattr(error, "ctx", None)
        where = f"; see {context.command_path} --help" if context else ""
        sys.exit(_fail(f"{message.removesuffix('.')}{where}", 2) if message else 2)
    except BrokenPipeError:  # the reader of a pipe has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except UnicodeError as error:  # a name in a table or configuration
        sys.exit(_fail(f"{error}; {ENCODING}", 2))
    except (MemoryError, RuntimeError) as error:
        status = STOPPED
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            sys.exit(_fail("out of memory; try smaller sizes or fewer metapaths", 2))
        if str(error) != "Query interrupted":  # what DuckDB makes of Ctrl-C
            raise
    except OSError as error:
        sys.exit(_fail(_describe(error), 2))
    if status == STOPPED:
        _fail(INTERRUPTED, status)
        sys.stdout.flush()
        os._exit(status)  # a thread may be in the middle of long work
    if status == FAILED:  # typer has shown no message
        _fail("shell completion works in bash, zsh, fish and PowerShell", 2)
    sys.exit(2 if status == FAILED else status or 0)


def _open_streams() -> None:
    """Open missing standard streams, so that no file gets their descriptors."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _environment_paths() -> list[str]:
    """Return the paths that a command reads from its environment."""
    named = (os.environ.get(name, "") for name in ("HANME_CACHE", "HANME_DATA", "HANME_ALLOW"))
    try:
        return [os.getcwd(), *named]
    except FileNotFoundError:
        raise HanmeError("the current folder has been deleted; change to another") from None


def _refuse_empty(words: list[str]) -> None:
    """Refuse an empty option or argument, which Path would read as the current folder."""
    for before, word in pairwise(words):
        if re.fullmatch(r"(--[\w-]+=)?", word):
            raise HanmeError(f"{word or before}: the value is empty")


def _refuse_undecodable(texts: list[str]) -> None:
    """Refuse arguments and paths that no library could open, before any work."""
    for text in texts:
        if "\0" in text:
            raise HanmeError(f"{text!r}: it contains a zero byte")
        if not text.isascii() and any("\udc80" <= c <= "\udcff" for c in text):
            raise HanmeError(f"{text!r}: not text in the encoding of this system; {ENCODING}")


LONGEST = 2000
"""Maximum length of a message in characters: a value in it may be as long as a file."""
ENCODING = "use names in UTF-8, and run in a UTF-8 locale or with PYTHONUTF8=1"


def _describe(error: OSError) -> str:
    """Return the file and the reason of an error of the system, with a remedy for a full disk."""
    text = f"{error.filename or 'a file'}: {error.strerror or error}"
    if error.errno == errno.EEXIST:
        text += ", and it is not a folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        text += "; make room, then continue train with --resume, others with the same command"
    return text


def _under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


@contextmanager
def _joined() -> Iterator[None]:
    """Join the processes that torchrun has started; only the first writes to the terminal."""
    if not _under_torchrun():
        yield
        return
    from hanme.common import ranks

    with ranks.joined(), open(os.devnull, "w") as nowhere:
        if ranks.is_first():
            yield
        else:
            with redirect_stdout(nowhere), redirect_stderr(nowhere):
                yield


def _fail(message: str, status: int) -> int:
    if _under_torchrun():
        from hanme.common import ranks

        if not ranks.speaks_of_failure():
            return status
    line = printable(" ".join(message.split()))
    line = line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
    with suppress(OSError):  # the disk of a log may be full
        print(f"hanme: {line}", file=sys.stderr)
    return status

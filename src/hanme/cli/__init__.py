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
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from itertools import pairwise
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from hanme import __version__
from hanme.cli.audit import audit
from hanme.cli.benchmark import benchmark
from hanme.cli.evaluate import evaluate
from hanme.cli.explain import explain
from hanme.cli.init import init
from hanme.cli.inspect import inspect
from hanme.cli.options import help_of, with_options
from hanme.cli.predict import predict
from hanme.cli.runs import runs
from hanme.cli.serve import serve
from hanme.cli.train import train
from hanme.cli.tune import tune
from hanme.common.text import printable
from hanme.errors import INTERRUPTED, HanmeError

COMMANDS = (
    init, inspect, train, runs, predict, evaluate, explain, audit, serve, benchmark, tune,
)  # fmt: skip
HELP = {"help_option_names": ["-h", "--help"]}
SHARED = ("train", "evaluate", "predict")
"""Commands that torchrun can share among processes."""
STOPPED = 130
"""Status after a keyboard interrupt."""
LONGEST = 2000
"""Maximum length of a message in characters: a value in it may be as long as a file."""


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
    """The commands of ``hanme``, in the order in which a user meets them."""

    def __init__(self, **settings: Any) -> None:
        commands = {function.__name__: Command(function) for function in COMMANDS}
        super().__init__(**settings | {"commands": commands})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: D102
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show γ shows ?
    try:
        _check_words(sys.argv)
        with _joined():
            status = app(prog_name="hanme", standalone_mode=False) or 0
        if status == 1:  # typer has shown no message
            raise HanmeError("shell completion works in bash, zsh, fish and PowerShell")
        print(end="", flush=True)
    except KeyboardInterrupt:  # before a command has started
        status = STOPPED
    except BrokenPipeError:  # the reader of a pipe has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        status = 2
        if str(error) == "Query interrupted":  # what DuckDB makes of Ctrl-C
            status = STOPPED
        elif (message := _describe(error)) is None:
            raise
        elif message:
            _fail(message)
        if isinstance(error, ImportError):  # for lack of memory: what is loaded in part may crash
            os._exit(status)
    if status == STOPPED:
        _fail(INTERRUPTED)
        os._exit(status)  # a thread may be in the middle of long work
    sys.exit(status)


def _check_words(words: list[str]) -> None:
    """Refuse empty values, which Path would read as the current folder, and what is no text."""
    for before, word in pairwise(words):
        if re.fullmatch(r"(--[\w-]+=)?", word):
            raise HanmeError(f"{word or before}: the value is empty")
        if re.search("[\0\ud800-\udfff]", word):
            raise HanmeError(f"{word!r}: not text in the encoding of this system; {ENCODING}")


ENCODING = "use names in UTF-8, and run in a UTF-8 locale or with PYTHONUTF8=1"


OUT_OF_MEMORY = (
    "out of memory; try smaller sizes or fewer metapaths. Loading the libraries alone takes about "
    "2 GB of address space (see ulimit -v)"
)

NO_MEMORY = re.compile(
    r"failed to map segment from shared object(?!: )|bad_alloc|start new thread"
    r"|(cannot|can't|unable to|failed to) allocate|out of memory",
    re.IGNORECASE,
)
"""What libraries say where memory is short; other errors of mapping a segment name their cause."""


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or one that it was made of, is a lack of memory."""
    if error is None or isinstance(error, HanmeError | typer.TyperException):
        return False
    short = isinstance(error, MemoryError) or NO_MEMORY.search(str(error)) is not None
    return short or _is_out_of_memory(error.__cause__ or error.__context__)


def _describe(error: Exception) -> str | None:
    """Return the message for an error of the user or the system; None for a defect of hanme."""
    if isinstance(error, HanmeError):
        return str(error)
    if _is_out_of_memory(error):
        return OUT_OF_MEMORY
    if isinstance(error, typer.TyperException):  # wrong options; no message after help
        message, context = error.format_message(), getattr(error, "ctx", None)
        where = f"; see {context.command_path} --help" if context else ""
        if (
            context
            and context.info_name == "explain"
            and re.match("No such option: -[^-]", message)
        ):
            where = "; if it is an id, write -- before it" + where
        return message and f"{message.removesuffix('.')}{where}"
    if isinstance(error, UnicodeError):  # a name in a table or configuration
        return f"{error}; {ENCODING}"
    if not isinstance(error, OSError):
        return None
    if error.filename and isinstance(error, FileExistsError | NotADirectoryError):
        path = Path(os.fsdecode(error.filename))
        for part in (path, *path.parents):
            if part.exists() and not part.is_dir():
                return f"{part}: a file, where a folder is needed; name a path outside of it"
    text = f"{error.filename or 'a file'}: {error.strerror or error}"
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

    with ranks.joined(), ExitStack() as stack:
        if not ranks.is_first():
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        yield


def _fail(message: str) -> None:
    if _under_torchrun():
        from hanme.common import ranks

        if not ranks.speaks_of_failure():
            return
    with suppress(OSError):  # the disk of a log may be full
        line = shorten(printable(message), LONGEST, placeholder=" ...")
        print(f"hanme: {line}", file=sys.stderr)

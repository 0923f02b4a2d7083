"""The command line: one file per command.

Commands import what they need when they run: torch takes seconds to import, and --help should not.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from itertools import pairwise
from typing import Annotated

import typer

from hanme import __version__
from hanme.cli.benchmark import benchmark
from hanme.cli.evaluate import evaluate
from hanme.cli.explain import explain
from hanme.cli.init import init
from hanme.cli.inspect import inspect
from hanme.cli.predict import predict
from hanme.cli.report import report
from hanme.cli.reproduce import reproduce
from hanme.cli.serve import serve
from hanme.cli.show import printable
from hanme.cli.store import store
from hanme.cli.train import train
from hanme.cli.tune import tune
from hanme.errors import INTERRUPTED, HanmeError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    init, inspect, store, train, evaluate, predict, explain, report, serve, reproduce, benchmark,
    tune,
):  # fmt: skip
    app.command()(command)

SHARED = ("train", "evaluate", "predict")
FAILED = 1  # what typer returns where it cannot go on
STOPPED = 130  # what typer returns after a keyboard interrupt


def _print_version(asked: bool) -> None:
    if asked:
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
    """Classify the nodes of heterogeneous graphs by attending to whole metapath instances.

    Try it without any data: hanme train planted, then hanme predict

    With tables of your own: hanme init FOLDER
    """
    if _under_torchrun() and context.invoked_subcommand not in SHARED:
        raise HanmeError(
            f"torchrun shares {', '.join(SHARED)} among processes; run hanme "
            f"{context.invoked_subcommand} by itself"
        )


def main() -> None:
    """Run a command; report a user's mistake in one line, with exit status 2."""
    gc.set_threshold(100_000)  # importing makes many objects, none of which can be collected
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show γ shows ?
    try:
        _refuse_empty(sys.argv)
        _refuse_odd([*sys.argv[1:], *_places()])
        with _joined():
            status = app(prog_name="hanme", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:  # before a command has begun
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
        sys.exit(_fail(_about(error), 2))
    if status == STOPPED:
        _fail(INTERRUPTED, status)
        sys.stdout.flush()
        os._exit(status)  # a thread may be in the middle of long work
    if status == FAILED:  # typer has shown no message
        _fail("shell completion works in bash, zsh, fish and PowerShell; start it from one", 2)
    sys.exit(2 if status == FAILED else status or 0)


def _open_streams() -> None:
    """Open the streams that the command was started without, so that no file takes their place."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _places() -> list[str]:
    """Return the paths that a command takes from where it is started."""
    named = (os.environ.get(name, "") for name in ("HANME_CACHE", "HANME_DATA", "HANME_ALLOW"))
    try:
        return [os.getcwd(), *named]
    except FileNotFoundError:
        raise HanmeError("the folder that you are in has been removed; go to another") from None


def _refuse_empty(words: list[str]) -> None:
    """Refuse an option or argument without a value, which Path would take for this folder."""
    for before, word in pairwise(words):
        if re.fullmatch(r"(--[\w-]+=)?", word):
            raise HanmeError(f"{word or before}: an empty value; give one, or leave it out")


def _refuse_odd(texts: list[str]) -> None:
    """Refuse arguments and paths that other libraries could not handle, before any work."""
    for text in texts:
        if "\0" in text:
            raise HanmeError(f"{text!r}: it holds a zero byte, which no path or option can have")
        if not text.isascii() and any("\udc80" <= c <= "\udcff" for c in text):
            raise HanmeError(f"{text!r}: not text in the encoding of this system; {ENCODING}")


LONGEST = 2000
"""Where a message is cut: a value in it may be as long as a file."""
ENCODING = "use names in UTF-8, and run in a UTF-8 locale or with PYTHONUTF8=1"


def _about(error: OSError) -> str:
    """Say which file the system complains about, and what to do where the disk is full."""
    said = f"{error.filename or 'a file'}: {error.strerror or error}"
    if error.errno == errno.EEXIST:
        said += ", and it is not a folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        said += "; make room, then continue train with --resume, others with the same command"
    return said


def _under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


@contextmanager
def _joined() -> Iterator[None]:
    """Join the processes that torchrun has started; the first alone speaks to the user."""
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

"""The command ``hanme serve``."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from hanme.cli.options import Allow, Source, the_run
from hanme.errors import HanmeError


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Finished run folders (default: the latest in runs/).",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    host: Annotated[
        str | None,
        typer.Option(
            help="Listen on this address of this machine, 0.0.0.0 for all (default: this machine "
            "alone can connect). Clients must know a token then, which is printed once."
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Another name the server is called by, such as a proxy's."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Ask clients for the token in this file.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    data: Source = None,
    allow: Allow = None,
) -> None:
    """Serve finished runs: a page to look at them, and an API for programs.

    hanme serve runs/films --open

    hanme serve runs/films runs/linear --port 8000
    """
    try:
        from hanme.serve.server import serve as serving
    except ImportError as error:
        raise HanmeError(
            f"hanme serve needs FastAPI and uvicorn ({error}): pip install 'hanme[serve]'"
        ) from None

    folders = runs or [the_run(None)]

    def started(address: str) -> None:
        own = address if token_file is None else address.partition("?")[0]
        print(f"hanme serves {', '.join(map(str, folders))} on {own}", flush=True)
        if open_:
            webbrowser.open(address)

    def loading() -> None:
        print("Loading; stop the server with Ctrl-C.", file=sys.stderr, flush=True)

    serving(
        folders,
        host=host,
        port=port,
        names=name or (),
        token_file=token_file,
        source=data,
        on_load=loading,
        on_start=started,
    )

"""The command ``hanme serve``."""

from __future__ import annotations

import signal
import sys
import webbrowser
from contextlib import ExitStack
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from hanme.cli.options import Range, find_run, suggest_names
from hanme.errors import HanmeError


def serve(
    runs: list[Path] | None = None,
    *,
    port: Annotated[int, Range(0, 65535)] = 8765,
    host: str | None = None,
    name: list[str] | None = None,
    token_file: Path | None = None,
    secure: bool = False,
    open_: bool = False,
    export: Path | None = None,
    node: list[str] | None = None,
    data: Path | None = None,
    allow: list[str] | None = None,
) -> None:
    """Serve runs as a web page and an API, or export the page as a file to send to a colleague.

    hanme serve runs/films --open

    hanme serve runs/films --export report.html --node f011 --node "The Amber Lantern"

    Args:
        runs: Run folders (default: the latest in runs/).
        port: Port; 0: a free one.
        host: Address to listen on, 0.0.0.0 for all (default: only this machine can connect).
        name: Another host name of the server, such as a proxy's.
        token_file: File with the token that clients must send (default: a random token).
        secure: Browsers come by a proxy with TLS only: never send the cookie without.
        open_: Open the page in a browser.
        export: Write the page of one run as a single .html file instead of serving it.
        node: With --export: id or name of a node to explain.
    """
    folders = runs or [find_run(None)]
    if export is not None:
        from hanme.serve.report import check_report, write_report
        from hanme.serve.served import load_runs

        if len(folders) > 1:
            raise HanmeError(f"--export writes the page of one run, but got {len(folders)}")
        check_report(export)
        (served,) = load_runs(folders, data).values()
        with suggest_names(served.graph):
            write_report(served, export, node or [])
        print(f"The report is in {export}.")
        return
    if node:
        raise HanmeError("--node chooses the nodes of an --export")
    try:
        from hanme.serve.server import serve as serve_runs
    except ImportError as error:
        raise HanmeError(
            f"hanme serve needs FastAPI and uvicorn ({error}): pip install 'hanme[serve]'"
        ) from None

    def on_start(address: str) -> None:
        shown = address if token_file is None else address.partition("?")[0]
        print(f"hanme serves {', '.join(map(str, folders))} on {shown}", flush=True)
        if open_:
            _open(address, stack.enter_context(TemporaryDirectory(prefix="hanme-")))

    def log(message: str) -> None:
        print(f"hanme: {message}", file=sys.stderr, flush=True)

    with ExitStack() as stack:
        serve_runs(
            folders,
            host=host,
            port=port,
            names=name or (),
            token_file=token_file,
            secure=secure,
            source=data,
            on_start=on_start,
            log=log,
        )


def _open(address: str, folder: str) -> None:
    """Open an address in a browser, by a file that leads to it: all users see its arguments."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # removes the folder
    file, to = Path(folder, "open.html"), escape(f"0; url={address}")
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="{to}">')
    webbrowser.open(file.as_uri())

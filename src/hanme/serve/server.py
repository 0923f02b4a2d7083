"""Run the server: bind a port, load the runs, answer until stopped."""

from __future__ import annotations

import re
import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from hanme.common.files import regular
from hanme.errors import HanmeError
from hanme.serve.app import make_app
from hanme.serve.guard import LOOPBACK, Guard
from hanme.serve.served import load_runs

MOST_CONNECTIONS = 256
"""Maximum number of open connections; more would only wait for each other."""

GRACE = 1
"""Seconds that requests have to end when the server is stopped."""

TOKEN = "[A-Za-z0-9_-]{16,}"
"""A token from a file: 96 bits if it is random."""


def serve(
    folders: Sequence[Path],
    *,
    host: str | None = None,
    port: int = 8765,
    names: Sequence[str] = (),
    token_file: Path | None = None,
    source: Path | None = None,
    on_start: Callable[[str], None] = lambda address: None,
    log: Callable[[str], None] = lambda message: None,
) -> None:
    """Serve finished runs until the process is interrupted or terminated.

    Args:
        folders: The runs.
        host: The address to listen on (default: only this machine can connect).
        port: The port; 0 takes a free one.
        names: Other host names of the server, such as that of a proxy.
        token_file: A file with the token that clients must know (default: a random one, which is
            part of the address that ``on_start`` gets).
        source: Where the files of a benchmark graph are.
        on_start: Called with the address to open once the runs are loaded.
        log: Called with messages, such as why a run cannot be opened.
    """
    if host == "":
        raise HanmeError("--host: name an address of this machine, or 0.0.0.0 for all")
    token = secrets.token_urlsafe(24) if token_file is None else _read_token(token_file)
    host = host or LOOPBACK[0]
    with _listen(host, port) as listener:
        log("loading; stop the server with Ctrl-C")
        app = make_app(load_runs(folders, source, log))
        public = host.lower() not in LOOPBACK
        own = [socket.gethostname(), host] if public else []
        guard = Guard(app, hosts=[*LOOPBACK, *own, *names], any_address=public, token=token)
        settings = uvicorn.Config(
            guard,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=GRACE,
            http="h11",
            ws="none",
        )
        sys.setswitchinterval(0.001)  # requests wait less for the threads that explain
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host
        name = f"[{name}]" if ":" in name else name
        on_start(f"http://{name}:{listener.getsockname()[1]}/?token={token}")
        uvicorn.Server(settings).run(sockets=[listener])


def _read_token(file: Path) -> str:
    try:
        token = regular(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise HanmeError(f"{file}: the token cannot be read ({error})") from None
    if not re.fullmatch(TOKEN, token):
        raise HanmeError(f"{file}: a token has at least 16 letters, digits, hyphens or underscores")
    return token


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        why = error.strerror or str(error)
        raise HanmeError(f"cannot listen on {host} port {port}: {why}; try --port 0") from None

"""Run the server: bind a port, load the runs, answer until stopped."""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from hanme.common.files import regular
from hanme.errors import HanmeError
from hanme.serve.app import make_app
from hanme.serve.connection import Connection
from hanme.serve.guard import LOOPBACK, Guard
from hanme.serve.served import load_runs

MOST_CONNECTIONS = 1024
"""Maximum number of open connections: below the usual limit of file descriptors."""

GRACE = 1
"""Seconds that requests have to end when the server is stopped."""

SHORTEST = 16
"""Minimum length of a token from a file: 96 bits if it is random."""


def serve(
    folders: Sequence[Path],
    *,
    host: str | None = None,
    port: int = 8765,
    names: Sequence[str] = (),
    token_file: Path | None = None,
    source: Path | None = None,
    on_load: Callable[[], None] = lambda: None,
    on_start: Callable[[str], None] = lambda address: None,
    on_skip: Callable[[str], None] = lambda message: None,
) -> None:
    """Serve finished runs until the process is interrupted or terminated.

    Args:
        folders: The runs.
        host: The address to listen on (default: only this machine can connect).
        port: The port; 0 takes a free one.
        names: Other names by which the server may be called, such as that of a proxy.
        token_file: A file with the token that clients must know (default: a random one, which is
            part of the address that ``on_start`` gets).
        source: Where the files of a benchmark graph are.
        on_load: Called when the port is bound, before the runs are loaded.
        on_start: Called with the address to open once requests are answered.
        on_skip: Called with the reason for each run that cannot be opened.
    """
    if host == "":
        raise HanmeError("--host: name an address of this machine, or 0.0.0.0 for all")
    token = secrets.token_urlsafe(24) if token_file is None else _read_token(token_file)
    listener = _listen(host or LOOPBACK[0], port)
    with listener:
        on_load()
        app = make_app(load_runs(folders, source, on_skip))
        any_address = host is not None and not _is_loopback(host)
        own = [socket.gethostname(), host or ""] if any_address else []
        guard = Guard(app, hosts=[*LOOPBACK, *own, *names], any_address=any_address, token=token)
        settings = uvicorn.Config(
            guard,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=GRACE,
            http=Connection,
            ws="none",
        )
        sys.setswitchinterval(0.001)  # requests wait less for the threads that explain
        address = f"{_address(listener, host)}?token={token}"
        _Server(settings, lambda: on_start(address)).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _read_token(file: Path) -> str:
    try:
        token = regular(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise HanmeError(f"{file}: the token cannot be read ({error})") from None
    safe = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    if len(token) < SHORTEST or not set(token) <= safe:
        raise HanmeError(
            f"{file}: a token has at least {SHORTEST} letters, digits, hyphens or underscores"
        )
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(MOST_CONNECTIONS)
    except OSError as error:
        listener.close()
        why = error.strerror or str(error)
        raise HanmeError(f"cannot listen on {host} port {port}: {why}; try --port 0") from None
    return listener


def _address(listener: socket.socket, host: str | None) -> str:
    port = listener.getsockname()[1]
    if host is None or host in ("0.0.0.0", "::"):
        name = LOOPBACK[0] if host is None else socket.gethostname()
    else:
        name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/"

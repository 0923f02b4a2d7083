"""Run the server: bind a port, load the runs, answer until stopped; and guard every request.

A page that is open in the same browser must not reach the server. It could not read an answer from
another origin, but by *DNS rebinding* it can make its own name point to this machine and so be of
the same origin; then the Host header still has its name, and is refused. Requests that a browser
sends for another site's page say so (Origin, Sec-Fetch-Site) and are refused.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from hanme.common.files import regular
from hanme.errors import HanmeError
from hanme.serve.app import make_app
from hanme.serve.served import load_runs

MOST_CONNECTIONS = 256
"""Maximum number of open connections; more would only wait for each other."""

PATIENCE = 10.0
"""Seconds that a connection has for the header of its next request, before it is closed."""

GRACE = 1
"""Seconds that requests have to end when the server is stopped."""

TOKEN = "[A-Za-z0-9_-]{16,}"
"""A token from a file: 96 bits if it is random."""

MOST_BYTES = 1 << 16
"""Maximum length of the body of a request: 200 changes of links fit."""

MOST_UPLOADED = 1 << 20
"""Maximum length of an uploaded table: 100 rows fit."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def serve(
    folders: Sequence[Path],
    *,
    host: str | None = None,
    port: int = 8765,
    names: Sequence[str] = (),
    token_file: Path | None = None,
    secure: bool = False,
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
        secure: Whether browsers reach the server by TLS only: its cookie is never sent without.
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
        hosts = [*LOOPBACK, *own, *names]
        guard = Guard(app, hosts=hosts, any_address=public, token=token, secure=secure)
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
        listener = socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
        # Accepted sockets inherit it: the body of an answer does not wait for the header's receipt.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        why = error.strerror or str(error)
        raise HanmeError(f"cannot listen on {host} port {port}: {why}; try --port 0") from None


class Connection(H11Protocol):
    """A connection that is closed if the header of its next request takes too long.

    The time runs from the start of the connection, or from the last answer; a part of a header does
    not extend it.
    """

    _until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self._wait()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._stop_waiting()

    def _wait(self) -> None:
        if self.transport.is_closing() or (self.cycle and not self.cycle.response_complete):
            self._stop_waiting()
        elif self._until is None:
            self._until = self.loop.call_later(PATIENCE, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._until is not None:
            self._until.cancel()
            self._until = None


class Guard:
    """Middleware that requires a token, in a header or once in the address, and a host name.

    The address is answered with a cookie that holds a value of its own, valid until the server
    stops. ``any_address`` accepts any IP address as its name, too: DNS cannot make one point here.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        hosts: Iterable[str] = LOOPBACK,
        any_address: bool = False,
        secure: bool = False,
    ) -> None:
        self.app, self.any_address, self.secure = app, any_address, secure
        self.token, self.session = token, secrets.token_urlsafe(24)
        self.hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        unread = [b""]

        async def replay() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop()}
            return await receive()

        async def safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                cached = "no-store" if scope["path"].startswith("/api/") else "no-cache"
                headers.setdefault("Cache-Control", cached)
            await send(message)

        # Files are sent whole: a Range is ignored. HEAD is answered as GET, without a body.
        rest = [pair for pair in scope["headers"] if pair[0] != b"range"]
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        scope = {**scope, "headers": rest, "method": method}
        request = Request(scope, receive)
        if refusal := self._refusal(request):
            await refusal(scope, receive, safe)
            return
        most = MOST_UPLOADED if scope["path"].endswith(".csv") else MOST_BYTES
        with suppress(ClientDisconnect):
            async for part in request.stream():
                unread[0] += part
                if len(unread[0]) > most:
                    why = f"a request may hold {most:,} bytes"
                    await _error(413, why)(scope, receive, safe)
                    return
            await self.app(scope, replay, safe)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a request that is not passed on."""
        headers, host = request.headers, request.headers.get("host", "").lower()
        if not self._is_own(host):
            return _error(403, "this server has another name (Host)")
        origin = headers.get("origin", f"//{host}").lower()
        site = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
        foreign = site[0] in ("cross-site", "same-site") and site[1] != "navigate"
        if foreign or origin.partition("//")[2] != host:
            return _error(403, "a page of another site may not use this server (Origin)")
        # Browsers share cookies among all ports of a host, so the name holds the port.
        cookie = f"hanme_{(request.scope.get('server') or ('', 0))[1]}"
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(token, self.token):
            return None
        if _same(request.cookies.get(cookie, ""), self.session):
            if request.method == "POST" and "origin" not in headers:
                return _error(403, "a page that sends data must say where it is from (Origin)")
            return None
        query = request.query_params
        entered = _same(query.get("token", ""), self.token)
        if request.scope["path"].startswith("/api/") or not entered:
            return _error(
                401,
                "the token is missing: open the address that hanme serve has printed, or send "
                "Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )
        rest = urlencode([pair for pair in query.multi_items() if pair[0] != "token"])
        response = RedirectResponse(f"/?{rest}" if rest else "/", 303)
        response.set_cookie(cookie, self.session, httponly=True, samesite="lax", secure=self.secure)
        return response

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self.hosts or (self.any_address and bool(ip_address(name)))
        except ValueError:  # no host, or no address
            return False


def _same(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.strip().encode(), secret.encode())


def _error(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": why}, status, headers)

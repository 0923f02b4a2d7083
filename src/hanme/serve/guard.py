"""Who may ask what: hosts, origins, the token; limits on sizes and numbers; safe headers.

A page that is open in the same browser must not reach the server. It could not read an answer from
another origin, but by *DNS rebinding* it can make its own name point to this machine and so be of
the same origin; then the Host header still has its name, and is refused. Requests that a browser
sends for another site's page say so (Origin, Sec-Fetch-Site) and are refused.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hanme.serve.work import Stopped

MOST_BYTES = 1 << 16
"""The longest body of a request."""

MOST_REQUESTS = 256
"""How many requests may be in the works at one time."""

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

log = logging.getLogger("hanme.serve")


class Refusal(HTTPException):
    """A request that is answered with a status and a line."""

    def __init__(self, status: int, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, why, headers)


class Guard:
    """Let through what may pass, and answer the rest.

    Args:
        app: What is guarded.
        hosts: The names by which the server may be called.
        any_address: Whether it may be called by any IP address, which no other name can fake.
        token: The token that every request must carry, as a cookie or in a header.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        hosts: Iterable[str] = LOOPBACK,
        any_address: bool = False,
    ) -> None:
        self.app, self.token, self.any_address = app, token, any_address
        self.hosts = {host.lower() for host in hosts}
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        started = False

        async def careful(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                cached = "no-cache" if not scope["path"].startswith("/api/") else "no-store"
                headers.setdefault("Cache-Control", cached)
            await send(message)

        self._requests += 1
        try:
            await self._answer(scope, receive, careful)
        except Refusal as refusal:
            if not started:
                await _say(careful, refusal.status_code, refusal.detail, refusal.headers)
        except Stopped:  # nobody is there to answer
            pass
        except asyncio.CancelledError:
            if not started:
                await _say(careful, 503, "the server is stopping")
        except Exception:
            log.exception("a request failed")
            if not started:
                await _say(careful, 500, "the server failed; its log says why")
        finally:
            self._requests -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self._requests > MOST_REQUESTS:
            raise Refusal(503, "too many requests at a time", {"Retry-After": "1"})
        self._check_host(headers)
        _check_origin(headers)
        if not self._knows(scope, headers):
            if there := self._entrance(scope):
                await _say(send, 303, "", there)
                return
            raise Refusal(
                401,
                "the token is missing: open the address that hanme serve has printed, or send "
                "Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )
        length = headers.get("content-length", "0")
        if not re.fullmatch("[0-9]{1,9}", length) or int(length) > MOST_BYTES:
            raise Refusal(413, f"a request may hold {MOST_BYTES:,} bytes")
        # Files are given whole: what a Range asks for is not looked at.
        rest = [pair for pair in scope["headers"] if pair[0] != b"range"]
        # HEAD is answered as GET: uvicorn leaves the body out.
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self.app({**scope, "headers": rest, "method": method}, _bounded(receive), send)

    def _check_host(self, headers: Headers) -> None:
        name = _name(headers.get("host", ""))
        if name in self.hosts or (self.any_address and _is_address(name)):
            return
        raise Refusal(403, "this server is not called by that name (Host)")

    def _knows(self, scope: Scope, headers: Headers) -> bool:
        given = headers.get("authorization", "")
        kind, _, text = given.partition(" ")
        cookie = cookie_parser(headers.get("cookie", "")).get(_cookie(scope), "")
        return (kind.lower() == "bearer" and self._is_token(text.strip())) or self._is_token(cookie)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())

    def _entrance(self, scope: Scope) -> dict[str, str] | None:
        """Return where to go on from ``/?token=...``, with a cookie, if the token is right."""
        if scope["method"] != "GET" or scope["path"].startswith("/api/"):
            return None
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if not any(key == "token" and self._is_token(value) for key, value in given):
            return None
        rest = urlencode([(key, value) for key, value in given if key != "token"])
        cookie = f"{_cookie(scope)}={self.token}; Path=/; HttpOnly; SameSite=Lax"
        return {"Location": f"/?{rest}" if rest else "/", "Set-Cookie": cookie}


def _cookie(scope: Scope) -> str:
    """Name the cookie: browsers keep the cookies of all ports of a host together."""
    return f"hanme_{(scope.get('server') or ('', 0))[1]}"


def _check_origin(headers: Headers) -> None:
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and _netloc(origin) != host.lower():
        raise Refusal(403, "a page of another site may not ask this server (Origin)")
    site, mode = headers.get("sec-fetch-site", ""), headers.get("sec-fetch-mode", "")
    if site in ("cross-site", "same-site") and mode != "navigate":
        raise Refusal(403, "a page of another site may not ask this server (Sec-Fetch-Site)")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _name(host: str) -> str:
    """Return a Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _bounded(receive: Receive) -> Callable[[], Awaitable[Message]]:
    """Receive a body that is not longer than is allowed."""
    taken = 0

    async def bounded() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MOST_BYTES:
            raise Refusal(413, f"a request may hold {MOST_BYTES:,} bytes")
        return message

    return bounded


async def _say(send: Send, status: int, why: str, headers: Mapping[str, str] | None = None) -> None:
    body = json.dumps({"error": why}).encode() if why else b""
    given = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    pairs = [(k.lower().encode(), v.encode()) for k, v in (given | dict(headers or {})).items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})

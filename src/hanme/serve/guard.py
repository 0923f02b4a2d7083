"""Check every request: host, origin and token, sizes and numbers; add safe headers.

A page that is open in the same browser must not reach the server. It could not read an answer from
another origin, but by *DNS rebinding* it can make its own name point to this machine and so be of
the same origin; then the Host header still has its name, and is refused. Requests that a browser
sends for another site's page say so (Origin, Sec-Fetch-Site) and are refused.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hanme.serve.work import Stopped

MOST_BYTES = 1 << 16
"""Maximum length of the body of a request: 200 changes of links fit."""

MOST_REQUESTS = 256
"""Maximum number of requests at a time; more would only wait for each other."""

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
                headers.update(HEADERS)
                cached = "no-cache" if not scope["path"].startswith("/api/") else "no-store"
                headers.setdefault("Cache-Control", cached)
            await send(message)

        refusal: Refusal | None = None
        self._requests += 1
        try:
            await self._answer(scope, receive, careful)
        except Refusal as error:
            refusal = error
        except Stopped:  # the client is gone
            pass
        except asyncio.CancelledError:
            refusal = Refusal(503, "the server is stopping")
        except Exception:
            log.exception("a request failed")
            refusal = Refusal(500, "the server failed; its log says why")
        finally:
            self._requests -= 1
        if refusal is not None and not started:
            body = {"error": refusal.detail}
            response = JSONResponse(body, refusal.status_code, refusal.headers)
            await response(scope, receive, careful)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self._requests > MOST_REQUESTS:
            raise Refusal(503, "too many requests at a time", {"Retry-After": "1"})
        self._check_host(headers)
        _check_origin(headers)
        if not self._knows(scope, headers):
            if response := self._entrance(scope):
                await response(scope, receive, send)
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
        name = _host(f"//{headers.get('host', '')}")
        if name in self.hosts or (self.any_address and _is_address(name)):
            return
        raise Refusal(403, "this server is not called by that name (Host)")

    def _knows(self, scope: Scope, headers: Headers) -> bool:
        kind, _, text = headers.get("authorization", "").partition(" ")
        cookie = cookie_parser(headers.get("cookie", "")).get(_cookie(scope), "")
        return (kind.lower() == "bearer" and self._is_token(text.strip())) or self._is_token(cookie)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())

    def _entrance(self, scope: Scope) -> Response | None:
        """Redirect from ``/?token=...`` to the same address without it, with a cookie."""
        if scope["method"] != "GET" or scope["path"].startswith("/api/"):
            return None
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if not any(key == "token" and self._is_token(value) for key, value in given):
            return None
        rest = urlencode([(key, value) for key, value in given if key != "token"])
        response = RedirectResponse(f"/?{rest}" if rest else "/", 303)
        response.set_cookie(_cookie(scope), self.token, httponly=True, samesite="lax")
        return response


def _cookie(scope: Scope) -> str:
    """Name the cookie: browsers keep the cookies of all ports of a host together."""
    return f"hanme_{(scope.get('server') or ('', 0))[1]}"


def _check_origin(headers: Headers) -> None:
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and origin.lower().partition("//")[2] != host.lower():
        raise Refusal(403, "a page of another site may not ask this server (Origin)")
    site, mode = headers.get("sec-fetch-site", ""), headers.get("sec-fetch-mode", "")
    if site in ("cross-site", "same-site") and mode != "navigate":
        raise Refusal(403, "a page of another site may not ask this server (Sec-Fetch-Site)")


def _host(address: str) -> str:
    """Return the host of an address in lower case, without its port; nothing if it has none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


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

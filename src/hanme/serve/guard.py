"""Check every request: host, origin, token and size; add safe headers.

A page that is open in the same browser must not reach the server. It could not read an answer from
another origin, but by *DNS rebinding* it can make its own name point to this machine and so be of
the same origin; then the Host header still has its name, and is refused. Requests that a browser
sends for another site's page say so (Origin, Sec-Fetch-Site) and are refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1 << 16
"""Maximum length of the body of a request: 200 changes of links fit."""

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


class Guard:
    """Middleware that requires a token, as a cookie or in a header, and a host name of the server.

    ``any_address`` accepts any IP address as its name, too: DNS cannot make one point here.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        hosts: Iterable[str] = LOOPBACK,
        any_address: bool = False,
    ) -> None:
        self.app, self.token, self.any_address = app, token.encode(), any_address
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
        with suppress(ClientDisconnect):
            async for part in request.stream():
                unread[0] += part
                if len(unread[0]) > MOST_BYTES:
                    why = f"a request may hold {MOST_BYTES:,} bytes"
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
        if scheme.lower() == "bearer" and self._is_token(token):
            return None
        if self._is_token(request.cookies.get(cookie, "")):
            if request.method == "POST" and "origin" not in headers:
                return _error(403, "a page that sends data must say where it is from (Origin)")
            return None
        query = request.query_params
        if request.scope["path"].startswith("/api/") or not self._is_token(query.get("token", "")):
            return _error(
                401,
                "the token is missing: open the address that hanme serve has printed, or send "
                "Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )
        rest = urlencode([pair for pair in query.multi_items() if pair[0] != "token"])
        response = RedirectResponse(f"/?{rest}" if rest else "/", 303)
        response.set_cookie(cookie, self.token.decode(), httponly=True, samesite="lax")
        return response

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self.hosts or (self.any_address and bool(ip_address(name)))
        except ValueError:  # no host, or no address
            return False

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.strip().encode(), self.token)


def _error(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": why}, status, headers)

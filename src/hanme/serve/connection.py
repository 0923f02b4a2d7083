"""A connection: a client that is slow to ask or to read is given up; what is no request is told so.

Uvicorn bounds how long a connection may be idle between requests, and h11 how long the head of a
request may be. Neither bounds how long a client may take.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SLOWEST = 30.0
"""Seconds that a client may take to send a request, or to read the response."""


class Connection(H11Protocol):
    """A connection that ends if its client keeps the server waiting."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._until: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, but not forever."""
        super().connection_made(transport)
        self._wait("ask")

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; the waiting ends once it is whole."""
        super().data_received(data)
        whole = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        (self._go_on if whole else self._wait)("ask")

    def pause_writing(self) -> None:
        """Wait for the client to read, but not forever."""
        super().pause_writing()
        self._wait("read")

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        super().resume_writing()
        self._go_on("read")

    def connection_lost(self, exc: Exception | None) -> None:
        """End the waiting."""
        super().connection_lost(exc)
        self._go_on("ask")
        self._go_on("read")

    def _wait(self, what: str) -> None:
        if what not in self._until:
            self._until[what] = self.loop.call_later(SLOWEST, self.transport.abort)

    def _go_on(self, what: str) -> None:
        if what in self._until:
            self._until.pop(what).cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request as every other mistake: with a line of JSON."""
        why = "this is no HTTP request, or its address and headers are too long"
        headers = [("Content-Type", "application/json"), ("Connection", "close")]
        with contextlib.suppress(h11.LocalProtocolError):  # an answer is under way already
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=json.dumps({"error": why}).encode()),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

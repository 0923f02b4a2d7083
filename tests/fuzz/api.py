"""Ask the API in this process, by whatever request, and judge the answer."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

from fuzz.damage import VALUES, WORDS, damage_bytes, damage_tree, to_json
from fuzz.harness import SECONDS, Case, Outcome, judged
from hanme.serve.app import API, make_app
from hanme.serve.served import load_runs
from hanme.serve.server import Guard

if TYPE_CHECKING:
    from fuzz.inputs import Inputs

RUN = f"{API}/runs/finished"
TOKEN = "a-token-of-the-tests"
LINK = {"relation": "film-played-person", "source": 1, "target": 5}
CHANGES = {
    "remove": [LINK],
    "add": [LINK | {"target": 2}],
}
PREDICTIONS = {
    "filter": "wrong", "predicted": "Drama", "true": "Comedy", "split": "test", "q": "Film",
    "sort": "probability", "of": "Comedy", "descending": "true", "offset": "1", "limit": "9",
}  # fmt: skip
SOUND: list[tuple[str, str, dict[str, str], Any]] = [
    ("GET", "/", {}, None),
    ("GET", "/style.css", {}, None),
    ("GET", f"{API}/openapi.json", {}, None),
    ("GET", f"{API}/health", {}, None),
    ("GET", f"{API}/runs", {}, None),
    ("GET", f"{RUN}/overview", {}, None),
    ("GET", f"{RUN}/graph", {}, None),
    ("GET", f"{RUN}/search", {"q": "film", "type": "film", "limit": "5"}, None),
    ("GET", f"{RUN}/nodes/person/3", {"limit": "2"}, None),
    ("GET", f"{RUN}/predictions", PREDICTIONS, None),
    ("GET", f"{RUN}/predictions", PREDICTIONS | {"format": "csv"}, None),
    ("GET", f"{RUN}/predictions/7", {}, None),
    ("POST", f"{RUN}/predictions", {}, {"nodes": ["f1", "Film, 2"]}),
    ("GET", f"{RUN}/explanations/1", {"label": "Drama", "instances": "3"}, None),
    ("GET", f"{RUN}/changes/2", {"label": "Drama"}, None),
    ("POST", f"{RUN}/rows", {}, {"rows": [{"columns": {}, "links": {"person": ["p1", 2]}}]}),
    ("POST", f"{RUN}/changes/1", {}, CHANGES),
    ("GET", f"{RUN}/reviews", {"limit": "3"}, None),
    ("POST", f"{RUN}/reviews", {"limit": "3"}, {"node": 3, "action": "skip", "labels": []}),
    ("GET", f"{API}/listing", {"run": "finished"}, None),
    ("GET", f"{API}/compare/finished/finished", {"filter": "all", "limit": "3"}, None),
]
ODD = [
    *WORDS, "\ud800", "\0", "١", "1_0", "+1", "1e3", "0x1", "9007199254740992", "-0", "40", "39",
    "..", "%2e%2e", "%", "%ff", "film", "person", "Drama", "film-person-film", "f1", ";", "&", "=",
]  # fmt: skip
HEADERS = [
    "host: evil.example", "host: [::1", "host: [", "host: 127.0.0.1:x", "host: ", "host: LOCALHOST",
    "origin: null", "origin: http://[", "origin: http://127.0.0.1", "origin: http://a:b:c",
    "sec-fetch-site: cross-site", "content-length: -1", "content-length: x", "content-length: ²",
    "content-length: 99999999999999999999", f"content-length: {'9' * 5000}", "content-length: 3",
    "content-type: text/plain", "content-type: application/json; charset=utf-16", "content-type: ;",
    "content-type: multipart/form-data", "content-type: application/x-www-form-urlencoded",
    "accept: \xff", "accept-encoding: gzip", "range: bytes=5-2", "range: bytes=-", "range: x=1-2",
    "range: bytes=0-", "range: bytes=0-1,3-4,9999999-", "if-modified-since: yesterday",
    "if-none-match: *", "if-range: x", "cookie: hanme_8765=\xff; a=b; =; ;", "connection: upgrade",
    "authorization: Bearer", "authorization: Basic \xff", "x-forwarded-for: 1", "upgrade: x",
    f"x-long: {'x' * 60_000}", "expect: 100-continue", "transfer-encoding: chunked",
]  # fmt: skip
METHODS = ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "POST", "GET", "X", ""]


class Api:
    """The application that ``hanme serve`` runs, asked without a network.

    Args:
        folders: The runs.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.app = Guard(make_app(load_runs(folders)), token=TOKEN)
        self.loop = asyncio.Runner()

    def ask(self, words: list[str]) -> Outcome:
        """Send a request: method, target, body, and headers as ``name: value``."""

        def answer() -> Outcome:
            with _logged() as lines:
                status, kind, body = self.loop.run(asyncio.wait_for(self._send(words), SECONDS))
            if lines:
                return Outcome("defect", "\n".join(lines))
            return _judged(words[0], status, kind, body)

        return judged(answer)

    async def _send(self, words: list[str]) -> tuple[int, str, bytes]:
        method, target, content, *headers = words
        path, _, query = target.encode("utf-8", "replace").partition(b"?")
        pairs = [header.partition(": ")[::2] for header in headers]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path.decode("ascii", "replace")),
            "raw_path": path,
            "root_path": "",
            "query_string": query,
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8765),
        }
        given = [{"type": "http.request", "body": content.encode("latin-1"), "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            if given:
                return given.pop()
            return await asyncio.Future()  # the client waits for the answer

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        head = {name.lower(): value for name, value in sent[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], head.get(b"content-type", b"").decode(), body


def _judged(method: str, status: int, kind: str, body: bytes) -> Outcome:
    try:
        values = json.loads(body, parse_constant=_refuse) if "json" in kind and body else None
    except ValueError as error:
        return Outcome("defect", f"{status}, not JSON ({error}): {body[:300]!r}")
    if status < 400:
        return Outcome("accepted", str(status), body.decode("utf-8", "replace"))
    if status != 503 and status >= 500:
        return Outcome("defect", f"{status}: {body!r}")
    said = values.get("error", "") if isinstance(values, dict) else ""
    if (said and "\n" not in said) or (method == "HEAD" and not body):
        return Outcome("refused", f"{status}: {said}")
    return Outcome("defect", f"{status} without one line of JSON: {body[:300]!r}")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Collect what is logged as an error."""
    lines: list[str] = []
    handler = logging.Handler(logging.ERROR)
    form = logging.Formatter()
    handler.emit = lambda record: lines.append(form.format(record))  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger().removeHandler(handler)


def api_request(draw: random.Random, inputs: Inputs, folder: Path) -> Case:
    """Damage a request: its path, its query, its body, its headers or its method."""
    method, path, query, body = draw.choice(SOUND)
    parts, pairs = path.split("/"), list(query.items())
    content = b"" if body is None else json.dumps(body).encode()
    headers = ["host: 127.0.0.1:8765", f"authorization: Bearer {TOKEN}"]
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        match draw.randrange(8):
            case 0 | 1:
                parts[draw.randrange(len(parts))] = _quoted(draw)
            case 2 if pairs:
                at = draw.randrange(len(pairs))
                pairs[at] = (pairs[at][0], draw.choice(ODD))
            case 3:
                pairs.append((draw.choice([*PREDICTIONS, *ODD]), draw.choice(ODD)))
            case 4 | 5 if body is not None:
                content = _damaged(draw, body)
            case 6:
                header = draw.choice(HEADERS)
                if draw.random() < 0.7:
                    headers = [h for h in headers if h.split(":")[0] != header.split(":")[0]]
                headers.append(header)
            case _:
                method = draw.choice([method] * 8 + METHODS)
    target = "/".join(parts) + ("?" + urlencode(pairs, errors="replace") if pairs else "")
    if draw.random() < 0.15:
        target = damage_bytes(draw, target.encode(errors="surrogatepass")).decode("latin-1")
    if body is not None and not any(h.startswith("content-type") for h in headers):
        headers.append("content-type: application/json")
    return Case("", [[method, target, content.decode("latin-1"), *headers]], by=inputs.api.ask)


def _quoted(draw: random.Random) -> str:
    text = draw.choice(ODD)
    return quote(text, safe="", errors="replace") if draw.random() < 0.8 else text


def _damaged(draw: random.Random, body: Any) -> bytes:
    whole = json.dumps(body).encode()
    match draw.randrange(6):
        case 0:
            return damage_bytes(draw, whole)
        case 1:
            return draw.choice([b"", b"[" * 60_000, b"{" * 999, b" " * 70_000, b"\xff\xfe", b"NaN"])
        case 2:
            return json.dumps(draw.choice([*VALUES, "\ud800", [body] * 3])).encode()
        case 3:
            return whole.replace(b"1", json.dumps(draw.choice([*VALUES, "\ud800"])).encode())
        case _:
            return to_json(damage_tree(draw, body)).encode()

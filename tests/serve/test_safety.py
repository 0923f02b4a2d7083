"""Who may ask, how much, and what happens if they go away."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from hanme.errors import HanmeError
from hanme.serve.served import load_runs
from hanme.serve.server import MOST_BYTES, MOST_CONNECTIONS, PATIENCE, _listen
from hanme.serve.work import Pool, QueueFull, Stopped
from serving import Server, serving


def raw(server: Server, text: str) -> str:
    """Send bytes as they are, but for the token, and return the answer."""
    token = f"Host: localhost\r\nAuthorization: Bearer {server.token}\r\n"
    text = text.replace("Host: localhost\r\n", token)
    host, port = server.url.split("/")[2].rsplit(":", 1)
    with socket.create_connection((host.strip("[]"), int(port)), timeout=30) as connection:
        connection.sendall(text.encode("latin-1"))
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer.decode("latin-1")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "192.168.0.1"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ],
)
def test_another_host_or_origin_gets_nothing(server: Server, headers: dict[str, str]) -> None:
    for path in ("runs", "../../", "openapi.json"):
        answer = server.ask(path, headers=headers)
        assert answer.status_code == 403
        assert list(answer.json()) == ["error"]


def test_its_own_pages_may_ask(server: Server) -> None:
    port = server.url.rstrip("/").rsplit(":", 1)[1]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "LOCALHOST"):
        headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert server.ask("runs", headers=headers).status_code == 200
    linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert server.ask("runs", headers=linked).status_code == 200  # a link that was clicked


def test_answers_carry_safe_headers(server: Server) -> None:
    for path in ("runs", "nothing", "runs/x/overview", "../../"):
        headers = server.ask(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers


def test_sizes_are_bounded(server: Server) -> None:
    long = server.ask("runs/planted/changes/3", data=b" " * (MOST_BYTES + 1))
    assert long.status_code == 413
    pieces = (b" " * 10_000 for _ in range(10))  # sent without saying how long it is
    assert server.ask("runs/planted/changes/3", data=pieces).status_code == 413
    assert server.ask("runs/planted/predictions?limit=501").status_code == 422
    assert server.ask("runs/planted/explanations/3?instances=201").status_code == 422
    assert server.ask("runs/planted/search", params={"q": "a" * 201}).status_code == 422
    links = [{"relation": "movie-to-actor", "source": 0, "target": i} for i in range(201)]
    assert server.ask("runs/planted/changes/3", json={"remove": links}).status_code == 422
    assert server.ask("runs/planted/changes/3", data=b"{nonsense").status_code == 422


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/%2e%2e/%2e%2e/app.py", "//etc/passwd", "/..%5c..%5capp.py", "/\x00"],
)
def test_no_other_file_is_given(server: Server, path: str) -> None:
    answer = raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert answer.split()[1] in ("404", "400")
    assert "root:" not in answer
    assert "import" not in answer


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/", 200),
        ("HEAD", "/api/v1/runs", 200),
        ("OPTIONS", "/", 405),
        ("OPTIONS", "/api/v1/runs", 405),
        ("PUT", "/api/v1/runs", 405),
        ("TRACE", "/api/v1/runs", 405),
        ("POST", "/", 405),
        ("NONSENSE", "/api/v1/runs", 405),
    ],
)
def test_other_methods_are_refused(server: Server, method: str, path: str, status: int) -> None:
    line = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    answer = raw(server, line + "Connection: close\r\n\r\n")
    head, _, body = answer.partition("\r\n\r\n")
    assert int(head.split()[1]) == status
    assert "access-control" not in head.lower()
    assert body == "" if method == "HEAD" else "error" in json.loads(body)


def test_there_are_no_web_sockets(server: Server) -> None:
    upgrade = "Connection: close, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    upgrade += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    for headers, status in (("", "200"), ("Origin: http://evil.example\r\n", "403")):
        answer = raw(server, f"GET / HTTP/1.1\r\nHost: localhost\r\n{headers}{upgrade}")
        assert answer.split()[1] == status


@pytest.mark.parametrize(
    "request_",
    [
        "nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",  # without a host
        "GET /é HTTP/1.1\r\nHost: localhost\r\n\r\n",
        f"GET /{'a' * 300_000} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_what_is_no_request_is_told_so(server: Server, request_: str) -> None:
    try:
        answer = raw(server, request_)
    except ConnectionError:  # it has not read all of a request that is too long
        return
    assert answer.split()[1] == "400"


def test_a_long_query_is_refused(server: Server) -> None:
    for length in (10_000, 60_000):
        for key in ("q", "x"):
            answer = server.ask(f"runs/planted/search?{key}={'a' * length}")
            assert answer.status_code in (400, 422)


def test_errors_are_a_line_of_json(server: Server) -> None:
    for path, status in (
        ("runs/x/overview", 404),
        ("nothing", 404),
        ("runs/planted/nodes/nothing/1", 404),
        ("runs/planted/nodes/movie/150", 404),
        ("runs/planted/predictions?predicted=Nothing", 404),
        ("runs/planted/predictions?limit=x", 422),
        ("runs/planted/explanations/3?label=x", 404),
        ("runs/planted/search", 422),
    ):
        answer = server.ask(path)
        assert answer.status_code == status
        (line,) = answer.json().values()
        assert line
        assert "\n" not in line
        assert "Traceback" not in line
    with requests.Session() as session:
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {server.token}"
        answer = session.delete(f"{server.api}/runs")
    assert answer.status_code == 405
    assert list(answer.json()) == ["error"]


@pytest.mark.parametrize(
    ("host", "given"),
    [
        (None, None),
        pytest.param("0.0.0.0", None, marks=pytest.mark.slow),
        pytest.param("0.0.0.0", "a-token_of-24-characters", marks=pytest.mark.slow),
    ],
)
def test_a_token_is_required(
    runs: Path, tmp_path: Path, host: str | None, given: str | None
) -> None:
    folder = shutil.copytree(runs / "paper", tmp_path / "paper")
    file = tmp_path / "token"
    file.write_text(f"{given}\n")
    options = ["--host", host] if host else []
    options += [] if given is None else ["--token-file", file]
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    with serving(folder, *options) as server:
        assert len(server.token) >= 32 if given is None else server.token == ""
        token = given or server.token
        port = server.url.split("/")[2].rsplit(":", 1)[1]
        own = Server(f"http://127.0.0.1:{port}/", server.process)
        for headers in (
            {},
            {"Authorization": f"Bearer {token[:-1]}"},
            {"Authorization": f"Basic {token}"},
            {"Cookie": f"hanme_{port}=wrong"},
        ):
            for path in ("runs", "health", "openapi.json", "../../", "../../?token=wrong"):
                assert own.ask(path, headers=headers).status_code == 401
        known = {"Authorization": f"Bearer {token}"}
        assert own.get("runs", headers=known)["runs"][0]["name"] == "paper"
        assert own.ask("runs", headers=known | {"Host": "evil.example"}).status_code == 403
        address = own.ask("runs", headers=known | {"Host": f"192.168.0.9:{port}"})
        assert address.status_code == (200 if host else 403)
        entrance = own.ask(f"../../?token={token}&x=1", allow_redirects=False)
        assert (entrance.status_code, entrance.headers["Location"]) == (303, "/?x=1")
        cookie = entrance.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite" in cookie
        assert "Secure" not in cookie
        assert token not in cookie  # what a browser keeps is of no use after the server has stopped
        value = cookie.partition("=")[2].partition(";")[0]
        assert own.ask("runs", headers={"Authorization": f"Bearer {value}"}).status_code == 401
        assert own.ask("runs", headers={"Cookie": f"hanme_{port}={token}"}).status_code == 401
        assert own.ask("runs", headers={"Cookie": cookie.split(";")[0]}).status_code == 200
        assert own.ask(f"runs?token={token}").status_code == 401  # no token in addresses of the API
        assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
        shutil.rmtree(folder)  # everything is in memory
        for path in ("overview", "graph", "predictions", "explanations/3"):
            assert own.ask(f"runs/paper/{path}", headers=known).status_code == 200
        assert own.ask("../../", headers=known).status_code == 200
        server.process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        out, said = server.process.communicate(timeout=10)
        assert time.monotonic() - begin < 5
        assert token not in out + said
        assert "Traceback" not in said


def test_small_answers_are_sent_at_once() -> None:
    with _listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.slow
def test_who_sends_no_request_does_not_keep_others_out(runs: Path) -> None:
    """Idle connections, half a header, a trickle of it, and a body without end and token."""
    beginnings = ("", "GET / HT", "GET / HTTP/1.1\r\nHost: localhost\r\nX-More: ",
                  "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")  # fmt: skip
    with serving(runs / "paper") as server, ExitStack() as stack:
        host, port = server.url.split("/")[2].rsplit(":", 1)
        opened = []
        for i in range(MOST_CONNECTIONS * 3 // 2):
            own = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            own.sendall(beginnings[i % 4].encode())
            opened.append(own)
        assert server.ask("health").status_code == 503
        until = time.monotonic() + PATIENCE + 5
        while (status := server.ask("health").status_code) == 503 and time.monotonic() < until:
            for i, own in enumerate(opened):
                if i % 4 >= 2:  # a closed one may have a broken pipe
                    with suppress(OSError):
                        own.sendall(b"x")
            time.sleep(0.5)
        assert status == 200


def test_a_connection_that_is_used_again_stays_open(server: Server) -> None:
    host, port = server.url.split("/")[2].rsplit(":", 1)
    request = "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n"
    request += f"Authorization: Bearer {server.token}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        for part in (request, request[:20], request[20:], request * 2):
            connection.sendall(part.encode())
            time.sleep(0.2)
        answered = 0
        while answered < 4:
            answered += connection.recv(65536).count(b"HTTP/1.1 200")


def test_opening_a_browser_shows_the_token_to_nobody_else(runs: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {said}.part\nmv {said}.part {said}\n')
    browser.chmod(0o755)
    options = (runs / "paper", "--open", "--secure")
    with serving(*options, environment={"BROWSER": f"{browser} %s"}) as server:
        until = time.monotonic() + 20
        while not said.exists() and time.monotonic() < until:
            time.sleep(0.05)
        address = said.read_text().strip()
        assert server.token not in address
        page = Path(urlsplit(address).path)
        assert f"{server.url}?token={server.token}" in page.read_text()
        assert page.parent.stat().st_mode & 0o077 == 0  # for this user alone
        entrance = Server(server.url, server.process).ask(
            f"../../?token={server.token}", allow_redirects=False
        )
        assert "Secure" in entrance.headers["Set-Cookie"]
    assert not page.parent.exists()


def test_tokens_and_ports_that_cannot_be_are_refused(
    tmp_path: Path, runs: Path, server: Server, refused: Callable[..., str]
) -> None:
    short = tmp_path / "token"
    short.write_text("short\n")
    refused("serve", runs / "paper", "--token-file", short)
    refused("serve", runs / "paper", "--token-file", tmp_path / "none")
    port = server.url.rstrip("/").rsplit(":", 1)[1]  # another server has it
    assert f"port {port}" in refused("serve", runs / "paper", "--port", port)
    refused("serve", runs / "paper", "--host", "203.0.113.7")


def test_a_run_that_cannot_be_opened_does_not_stop_the_others(tmp_path: Path, runs: Path) -> None:
    unfinished = shutil.copytree(runs / "paper", tmp_path / "unfinished")
    (unfinished / "result.json").unlink()
    skipped: list[str] = []
    served = load_runs([tmp_path, unfinished, runs / "paper"], log=skipped.append)
    assert list(served) == ["paper"]
    assert len(skipped) == 2
    assert str(unfinished) in skipped[1]
    for folders in ([unfinished], [tmp_path], [tmp_path, unfinished]):
        with pytest.raises(HanmeError):
            load_runs(folders)


class Client:
    """A request whose client goes away when told to."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, str]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


def endless(pause: Callable[[], None]) -> None:
    while True:
        pause()
        time.sleep(0.005)


@pytest.mark.parametrize("stopping", [False, True])
def test_work_stops_with_its_client_or_the_server(stopping: bool) -> None:
    ended = threading.Event()

    def job(pause: Callable[[], None]) -> None:
        try:
            endless(pause)
        finally:
            ended.set()

    async def go() -> None:
        pool, client = Pool(1, 1, 30), Client()
        task = asyncio.ensure_future(pool.run(client, job))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        assert pool.state()["running"] == 1
        task.cancel() if stopping else client.gone.set()
        with pytest.raises(Stopped, match="stopping" if stopping else "gone"):
            await task
        assert await asyncio.to_thread(ended.wait, 5)
        await asyncio.sleep(0.05)
        assert pool.state() == {"running": 0, "waiting": 0}

    asyncio.run(go())


def test_work_is_bounded_in_number_and_time() -> None:
    async def go() -> None:
        pool, client = Pool(1, 1, 0.3), Client()
        first: Any = [
            asyncio.ensure_future(pool.run(client, endless))  # type: ignore[arg-type]
            for _ in range(2)
        ]
        await asyncio.sleep(0.05)
        assert (pool.state()["running"], pool.state()["waiting"]) == (1, 1)
        with pytest.raises(QueueFull):
            await pool.run(client, endless)  # type: ignore[arg-type]
        for task in first:
            with pytest.raises(Stopped, match="longer than"):
                await task
        assert await pool.run(client, lambda pause: 7) == 7  # type: ignore[arg-type]

    asyncio.run(go())


def test_a_client_that_closes_its_connection_stops_its_explanation(server: Server) -> None:
    """On a real connection: many that nobody reads, and the server answers others meanwhile."""
    host, port = server.url.split("/")[2].rsplit(":", 1)
    for node in range(40):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            path = f"/api/v1/runs/planted/explanations/{node}?instances=200"
            token = f"Authorization: Bearer {server.token}"
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}\r\n\r\n"
            connection.sendall(head.encode())
    until = time.monotonic() + 20
    while (now := server.get("health"))["running"] and time.monotonic() < until:
        time.sleep(0.05)
    assert (now["running"], now["waiting"]) == (0, 0)
    assert server.get("runs/planted/explanations/3")["node"] == 3


def test_the_command_says_what_is_missing(
    runs: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hanme.serve.server", None)  # importing it fails
    assert "pip install 'hanme[serve]'" in refused("serve", runs / "paper")

"""What clients other than a browser may send to a server, over its socket and by HTTP, and what that costs it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from app_server import serve
from session_client import SessionClient
from starlette.types import Message, Receive, Scope, Send
from streamlit.proto.BackMsg_pb2 import BackMsg

from app.guards import messages
from merging.base import modes

ENTRIES = ("app/serve.py", pytest.param("app/main.py", marks=pytest.mark.full))
SOCKET = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}  # fmt: skip
TIMES, PATIENCE = 10, 60.0
LARGEST = 2**20  # bytes of a file, where the servers here are started with a limit of 1 MB
NEAR = LARGEST - 5000  # a file of this size is taken


def children(url: str) -> list[int]:
    """The processes of the server at an address; a process that has ended has no command line."""
    port = str(urlsplit(url).port)
    (server,) = (one for one in psutil.Process().children() if port in (one.as_dict(["cmdline"])["cmdline"] or ()))
    return sorted(child.pid for child in server.children(recursive=True))


def computing(url: str) -> bool:
    """Whether a job runs or waits, as the server says."""
    with urllib.request.urlopen(f"{url}/status", timeout=30) as answer:
        queue = json.load(answer)["queue"]
    return bool(queue["running"] or queue["waiting"])


def log(folder: Path) -> str:
    return (folder / "log.txt").read_text("utf-8")


# Messages


@pytest.mark.full
@pytest.mark.parametrize("mode", ["full", "class"])
def test_a_session_that_clears_the_caches_multiplies_nothing(mode: str, library: Path, tmp_path: Path) -> None:
    def counts(url: str) -> tuple[int, int, int]:
        """Processes, polls and jobs."""
        store = tmp_path / "store"
        return len(children(url)), len(list(store.glob("polls/*"))), len(list(store.glob("jobs/*")))

    async def clear(url: str) -> None:
        async with SessionClient(urlsplit(url).netloc) as client:
            await client.open("lessons", {})
            await client.press("class_begin", "The code of your class")
        async with SessionClient(urlsplit(url).netloc) as client:  # in the first, a run under way may use up the link
            await client.open_with("merge", {"chain": "emr"}, "run_button")
            limit = time.monotonic() + PATIENCE
            while not counts(url)[2] and time.monotonic() < limit:  # a click may come while the page is drawn anew
                await client.press("run_button")
                await asyncio.sleep(1)
            before = (1 + (mode == "full"), 1, 1)  # the spare process, the live previews, the job
            while (counts(url) != before or computing(url)) and time.monotonic() < limit:
                await asyncio.sleep(0.2)
            assert counts(url) == before
            for _ in range(TIMES):
                await client.tell(BackMsg(clear_cache=True))
                assert not (await client.open("", {})).errors
            await asyncio.sleep(5)  # longer than a server waits before it starts a spare process
            assert counts(url) == before

    with serve(library, tmp_path, {modes.MODE_VARIABLE: mode}, entry="app/serve.py") as url:
        asyncio.run(clear(url))


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, set()),
        ({modes.MODE_VARIABLE: "class"}, {messages.CLEAR_CACHE, messages.FILE_URLS}),
        ({modes.MODE_VARIABLE: "read"}, {messages.CLEAR_CACHE, messages.FILE_URLS}),
        ({"MERGESCOPE_SHARED": "1"}, {messages.CLEAR_CACHE, messages.FILE_URLS}),
        ({modes.MODE_VARIABLE: "lecture"}, {messages.CLEAR_CACHE, messages.FILE_URLS}),  # there is no such mode
    ],
)
def test_messages_that_a_server_of_several_people_drops(
    settings: dict[str, str], refused: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    sent = [BackMsg(clear_cache=True), BackMsg(), BackMsg(stop_script=True)]
    sent[1].file_urls_request.file_names.append("file.bin")
    coming = [{"type": "websocket.receive", "bytes": one.SerializeToString()} for one in sent]
    came: list[str | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "websocket.receive":
            came.append(BackMsg.FromString(message["bytes"]).WhichOneof("type"))

    async def receive() -> Message:
        return coming.pop(0) if coming else {"type": "websocket.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    asyncio.run(messages.MessageGuard(app)({"type": "websocket"}, receive, send))
    assert came == [kind for kind in (messages.CLEAR_CACHE, messages.FILE_URLS, "stop_script") if kind not in refused]


@pytest.mark.full
@pytest.mark.parametrize("entry", ENTRIES)
def test_what_is_no_message_ends_the_socket_without_a_word_in_the_log(
    entry: str, library: Path, tmp_path: Path
) -> None:
    async def send(url: str, message: str | bytes) -> int:
        async with SessionClient(urlsplit(url).netloc) as client:
            await client.open("", {})
            await client.tell(message)
            return await client.close_code()

    with serve(library, tmp_path, entry=entry) as url:
        assert asyncio.run(send(url, "a text")) == 1003
        assert asyncio.run(send(url, b"\xff\xff")) == 1002
    assert "Traceback" not in log(tmp_path) and "Error" not in log(tmp_path)


# Names


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_server_answers_to_its_own_names_only(entry: str, library: Path, tmp_path: Path) -> None:
    def asked(host: str, path: str, method: str = "GET", **headers: str) -> int:
        with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)) as line:
            line.request(method, path, headers={"Host": host, **headers})
            return line.getresponse().status

    with serve(library, tmp_path, entry=entry) as url:
        own, port = urlsplit(url).netloc, urlsplit(url).port
        foreign = ("evil.example", f"evil.example:{port}", "localhost.evil", "")
        for path in ("/", "/masks", "/static/index.html", "/_stcore/health", "/_stcore/metrics", "/status", "/media/x"):
            assert [asked(host, path) for host in foreign] == [403] * len(foreign), path
        assert asked("evil.example", "/_stcore/upload_file/a/b", "PUT") == 403
        assert [asked(host, "/") for host in (own, "localhost", "LOCALHOST:1")] == [200] * 3
        assert [asked(host, "/_stcore/stream", **SOCKET) for host in (own, *foreign)] == [101] + [403] * len(foreign)


# Files


class Uploader:
    """Sends files of a session as the widget of a page does."""

    def __init__(self, url: str, session: str) -> None:
        self.host, self.session = urlsplit(url).netloc, session
        with urllib.request.urlopen(f"{url}/_stcore/health", timeout=30) as answer:
            self.token = answer.headers["Set-Cookie"].partition(";")[0].partition("=")[2]

    def head(self, file: str, size: int | None) -> bytes:
        """The head of a request for a body of that size, or one that comes in pieces."""
        length = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
        lines = (
            f"PUT /_stcore/upload_file/{self.session}/{file} HTTP/1.1", f"Host: {self.host}", length,
            f"X-Xsrftoken: {self.token}", f"Cookie: _streamlit_xsrf={self.token}",
            "Content-Type: multipart/form-data; boundary=parts", "", "",
        )  # fmt: skip
        return "\r\n".join(lines).encode()

    def begin(self, file: str, size: int | None) -> socket.socket:
        """A connection on which a file is announced, and nothing of it sent."""
        name, _, port = self.host.partition(":")
        line = socket.create_connection((name, int(port)), timeout=30)
        line.sendall(self.head(file, size))
        return line

    def send(self, file: str, size: int) -> int:
        """The answer to a file."""
        body = b'--parts\r\nContent-Disposition: form-data; name="f"; filename="f.bin"\r\n\r\n' + bytes(size)
        body += b"\r\n--parts--\r\n"
        with self.begin(file, len(body)) as line:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is refused before it is all sent
                line.sendall(body)
            return answered(line)

    def remove(self, file: str) -> int:
        headers = {"X-Xsrftoken": self.token, "Cookie": f"_streamlit_xsrf={self.token}"}
        with contextlib.closing(http.client.HTTPConnection(self.host, timeout=30)) as line:
            line.request("DELETE", f"/_stcore/upload_file/{self.session}/{file}", headers=headers)
            return line.getresponse().status


def answered(line: socket.socket) -> int:
    """The status of the answer on a connection."""
    return int(line.recv(4096).split()[1])


@pytest.mark.parametrize(
    ("mode", "entry"),
    [
        ("class", "app/serve.py"),
        *(pytest.param("read", f"app/{name}.py", marks=pytest.mark.full) for name in ("serve", "main")),
    ],
)
def test_modes_without_uploads_read_no_byte_of_a_file(mode: str, entry: str, library: Path, tmp_path: Path) -> None:
    async def attack(url: str) -> None:
        async with SessionClient(urlsplit(url).netloc) as client:
            await client.open("", {})
            with pytest.raises(TimeoutError):
                await client.upload_addresses(1, patience=3)
            uploader = Uploader(url, client.id)
            for size in (60 * 2**20, 10, None):
                with uploader.begin("file", size) as line:
                    assert answered(line) == 403
                    assert line.recv(4096) in (b"", b"This server takes no uploads.\n")
            assert not (await client.open("", {})).errors  # the session goes on

    with serve(library, tmp_path, {modes.MODE_VARIABLE: mode}, entry=entry) as url:
        asyncio.run(attack(url))


@pytest.fixture
def full(library: Path, tmp_path: Path) -> Iterator[str]:
    """A server in full mode that takes files of 1 MB."""
    with serve(library, tmp_path, {"STREAMLIT_SERVER_MAX_UPLOAD_SIZE": "1"}) as url:
        yield url


@pytest.mark.full
def test_files_in_memory_are_bounded_by_session_and_in_sum(full: str) -> None:
    async def fill(url: str) -> None:
        host = urlsplit(url).netloc
        async with SessionClient(host) as first, SessionClient(host) as second, SessionClient(host) as third:
            uploaders = []
            for client in (first, second, third):
                await client.open("", {})
                assert len(await client.upload_addresses(2)) == 2
                uploaders.append(Uploader(url, client.id))
            one, two, three = uploaders
            assert [one.send(file, NEAR) for file in "abc"] == [204, 204, 413]
            with (
                two.begin("a", NEAR),
                two.begin("b", NEAR),
            ):  # nothing of them has come, and there must be room for them
                await asyncio.sleep(1)
                assert [two.send("c", NEAR), three.send("a", NEAR)] == [413, 413]
            await asyncio.sleep(1)
            assert [two.send(file, NEAR) for file in "ab"] == [204, 204] and three.send("a", 1000) == 204
            assert three.send("b", NEAR) == 413  # all sessions together
            assert one.remove("a") == 204 and three.send("b", NEAR) == 204
            with one.begin("d", None) as line:
                assert answered(line) == 411

    asyncio.run(fill(full))

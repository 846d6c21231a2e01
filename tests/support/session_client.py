"""A session of the app without a browser: it speaks to the server's websocket as the front end does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlencode

from streamlit.proto.Alert_pb2 import Alert
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

PATIENCE = 120.0  # seconds that a rerun may take
DONE = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_WITH_COMPILE_ERROR)


@dataclass(frozen=True)
class Rerun:
    """A page that was drawn: seconds until it was done, bytes that came, and what it said went wrong."""

    seconds: float
    nbytes: int
    errors: tuple[str, ...]
    first: bool = False  # in its session


class SessionClient:
    """One session on a server at HOST:PORT."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._socket: ClientConnection | None = None
        self._page = ""  # the hash of the page that was drawn last
        self._address = ""  # its query, as the server says it
        self._buttons: dict[str, str] = {}  # the id that the server gave to a button, by its key
        self.id = ""  # the session's, as the server says it

    async def __aenter__(self) -> SessionClient:
        self._socket = await connect(
            f"ws://{self._host}/_stcore/stream", origin=f"http://{self._host}", subprotocols=["streamlit"],  # type: ignore[arg-type, list-item]
            max_size=None, open_timeout=PATIENCE, ping_interval=None,
        )  # fmt: skip
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            await self._socket.close()

    async def open(self, page: str, query: dict[str, str], expected: str = "") -> Rerun:
        """Draw a page, by its path, at an address. It is an error if no text on it has the ``expected`` words."""
        asked = BackMsg()
        self._address = urlencode(query)
        asked.rerun_script.query_string, asked.rerun_script.page_name = self._address, page
        return await self._rerun(asked, expected)

    async def open_with(self, page: str, query: dict[str, str], key: str) -> None:
        """Draw a page until the button with this key is on it, however often the server draws it by itself."""
        drawn = await self.open(page, query)
        while key not in self._buttons:
            assert not drawn.errors, drawn.errors
            drawn = await self._follow("")

    async def press(self, key: str, expected: str = "") -> Rerun:
        """Press the button with this key on the page that was drawn last."""
        asked = BackMsg()
        asked.rerun_script.query_string, asked.rerun_script.page_script_hash = self._address, self._page
        asked.rerun_script.widget_states.widgets.add(id=self._buttons[key], trigger_value=True)
        return await self._rerun(asked, expected)

    async def tell(self, message: BackMsg | str | bytes) -> None:
        """Send a message that asks for no page, or what is no message at all."""
        assert self._socket is not None
        await self._socket.send(message.SerializeToString() if isinstance(message, BackMsg) else message)

    async def upload_addresses(self, count: int, patience: float = PATIENCE) -> list[str]:
        """The paths that the server gives for so many files; TimeoutError if it gives none."""
        asked = BackMsg()
        asked.file_urls_request.request_id = "files"
        asked.file_urls_request.file_names.extend(f"{number}.bin" for number in range(count))
        asked.file_urls_request.session_id = self.id
        await self.tell(asked)
        async with asyncio.timeout(patience):
            while (said := await self._next()).WhichOneof("type") != "file_urls_response":
                pass
        return [one.upload_url for one in said.file_urls_response.file_urls]

    async def close_code(self) -> int:
        """The code with which the server closes the socket."""
        assert self._socket is not None
        with contextlib.suppress(ConnectionClosed):
            async with asyncio.timeout(PATIENCE):
                while True:
                    await self._socket.recv()
        return self._socket.close_code or 0

    async def _next(self) -> ForwardMsg:
        assert self._socket is not None
        raw = await self._socket.recv()
        assert isinstance(raw, bytes)
        return ForwardMsg.FromString(raw)

    async def _rerun(self, asked: BackMsg, expected: str) -> Rerun:
        assert self._socket is not None
        await self._socket.send(asked.SerializeToString())
        return await self._follow(expected)

    async def _follow(self, expected: str) -> Rerun:
        """Take what the server says until a page was drawn."""
        assert self._socket is not None
        begun = time.perf_counter()
        nbytes, errors, seen = 0, [], not expected
        while True:
            raw = await asyncio.wait_for(self._socket.recv(), PATIENCE)
            assert isinstance(raw, bytes)
            nbytes += len(raw)
            said = ForwardMsg.FromString(raw)
            kind = said.WhichOneof("type")
            if kind == "delta":
                errors += _errors(said)
                element = said.delta.new_element
                seen = seen or expected in element.markdown.body
                if element.WhichOneof("type") == "button":
                    self._buttons[element.button.id.rsplit("-", 1)[-1]] = element.button.id
            elif kind == "new_session":
                self.id = said.new_session.initialize.session_id
            elif kind == "navigation":
                self._page = said.navigation.page_script_hash
            elif kind == "page_info_changed":
                self._address = said.page_info_changed.query_string
            elif kind == "page_not_found":
                errors.append("no such page")
            elif kind == "script_finished" and said.script_finished in DONE:
                if said.script_finished == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
                    errors.append("compile error")
                errors += [] if seen else [f"nothing says {expected!r}"]
                return Rerun(time.perf_counter() - begun, nbytes, tuple(errors))


def _errors(said: ForwardMsg) -> list[str]:
    element = said.delta.new_element
    if element.WhichOneof("type") == "exception":
        return [f"{element.exception.type}: {element.exception.message}"[:200]]
    if element.WhichOneof("type") == "alert" and element.alert.format == Alert.ERROR:
        return [element.alert.body[:200]]
    return []

"""Which pages may show the app in a frame."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.guards import frames
from merging.base.errors import MergingError


def answered(monkeypatch: pytest.MonkeyPatch, written: str | None) -> dict[bytes, bytes]:
    """The headers of an answer under a setting."""
    monkeypatch.delenv(frames.FRAMES_SETTING, raising=False)
    if written is not None:
        monkeypatch.setenv(frames.FRAMES_SETTING, written)
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(frames.FrameHeader(app)({"type": "http"}, None, send))  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    return dict(sent[0]["headers"])


def test_by_default_pages_of_this_machine_and_files_may(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = answered(monkeypatch, None)
    assert headers[b"x"] == b"y"
    here = b"frame-ancestors 'self' http://localhost:* http://127.0.0.1:* file:"
    assert headers[b"content-security-policy"] == here
    more = answered(monkeypatch, "https://course.example.edu, https://*.example.org:8080")[b"content-security-policy"]
    assert more == here + b" https://course.example.edu https://*.example.org:8080"
    assert answered(monkeypatch, "none")[b"content-security-policy"] == b"frame-ancestors 'none'"
    assert answered(monkeypatch, "*")[b"content-security-policy"] == b"frame-ancestors *"


@pytest.mark.parametrize("written", ["course.example.edu", "https://a.b/path", "https://a.b; script-src *", "none *"])
def test_what_is_no_origin_is_refused(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv(frames.FRAMES_SETTING, written)
    with pytest.raises(MergingError, match="which is not an origin"):
        frames.frame_policy()


def test_the_served_app_sends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from app import serve

    assert frames.FrameHeader in [one.cls for one in serve.app._user_middleware]
    monkeypatch.setenv(frames.FRAMES_SETTING, "course")
    assert "not an origin" in serve.settings_problem()

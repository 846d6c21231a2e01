"""On no page is a text from outside read as Markdown, and no invisible character reaches one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from direct_bench import DirectPreviewProcess
from hostile_texts import TEXTS, active

from app.reading import previews
from app.session.address import KEYS

PAGES = (
    "home", "merge", "methods", "masks", "conflicts", "drift", "features", "scores", "sweeps", "compare", "models",
    "report", "image",
)  # fmt: skip
PLAIN = {  # fields that the browser shows as they are, or not at all
    ("Text", "body"), ("Code", "code_text"), ("Selectbox", "options"), ("Selectbox", "raw_value"),
    ("MultiSelect", "options"), ("MultiSelect", "raw_values"), ("TextInput", "value"), ("TextInput", "default"),
    ("TextArea", "value"), ("TextArea", "default"), ("DownloadButton", "url"), ("PageLink", "page"),
    ("PageLink", "query_string"), ("BidiComponent", "json"),  # which our scripts draw as text
}  # fmt: skip
LINKED = sorted(KEYS - {"benchmark", "lesson", "step", "progress", "answers", "class", "notes", "report_token"})
DATA = ("PlotlyChart", "Arrow", "ArrowData", "ImageList", "Image")  # figures have tests of their own; tables show text


def markdown(message: Any) -> Iterator[tuple[str, str]]:
    """(message.field, text) of everything in an element that the browser reads as Markdown."""
    kind = message.DESCRIPTOR.name
    if kind in DATA:
        return
    for field, value in message.ListFields():
        for item in value if field.is_repeated else [value]:
            if hasattr(item, "ListFields"):
                yield from markdown(item)
            elif isinstance(item, str) and field.name not in {"id", "form_id"} and (kind, field.name) not in PLAIN:
                yield f"{kind}.{field.name}", item


def elements(block: Any) -> Iterator[Any]:
    for child in block.children.values():
        if hasattr(child, "children"):
            if child.proto is not None:
                yield child.proto
            yield from elements(child)
        else:
            yield child.proto


def faults(at: Any) -> list[tuple[str, str, list[str]]]:
    texts = [pair for proto in elements(at._tree) for pair in markdown(proto)]
    assert len(texts) > 5
    return [(place, text[:300], parts) for place, text in texts if (parts := active(text))]


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables about images are made in this process."""
    direct = DirectPreviewProcess()
    monkeypatch.setattr(previews, "preview_process", lambda: direct)


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES)
def test_texts_from_outside_stay_texts(open_app: Any, hostile_library: Path, hostile_models: Path, page: str) -> None:
    at = open_app(page, hostile_library)
    assert not at.exception
    assert faults(at) == []


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES)
def test_links_from_outside_stay_texts(open_app: Any, hostile_library: Path, page: str) -> None:
    for shift in (0, 7):
        values = [*TEXTS.values()]
        query = {key: values[(place + shift) % len(values)][:300] for place, key in enumerate(LINKED)}
        at = open_app(page, hostile_library, **query)
        assert not at.exception
        assert faults(at) == []

"""A bench without a process of its own: it makes tables about images at once, where they are asked for."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pandas as pd

from merging.base.errors import MergingError
from merging.study.image_stages import image_stages
from merging.study.previews.preview_process import ImageRequest, PreviewState, TableName
from merging.tasks.context import Context


class DirectPreviewProcess:
    """Answers requests about images; ``asked`` are all of them."""

    def __init__(self) -> None:
        self.asked: list[ImageRequest] = []
        self._states: dict[str, PreviewState] = {}

    def send_request(self, session: str, request: ImageRequest) -> PreviewState:
        self.asked.append(request)
        self._states[session] = answer_tables(request)
        return self._states[session]

    def find_state(self, session: str, request: ImageRequest) -> PreviewState | None:
        state = self._states.get(session)
        return state if state is not None and state.request == request else None

    def cancel(self, session: str) -> None:
        self._states.pop(session, None)


def answer_tables(request: ImageRequest) -> PreviewState:
    """All tables of a request, sent through JSON as between processes."""
    tables: dict[TableName, pd.DataFrame] = {}
    plain: dict[str, Any] = json.loads(json.dumps(asdict(request)))
    try:
        for stage in image_stages(plain, Context("cpu")):
            answer = json.loads(json.dumps(stage.answer))
            tables[TableName(*answer["table"])] = pd.DataFrame(answer["columns"])
    except MergingError as error:
        return PreviewState(request, error=str(error), done=True)
    return PreviewState(request, tables=tables, done=True)

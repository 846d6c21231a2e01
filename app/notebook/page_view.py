"""The charts of an address of the app, opened in this process, without a server and without a browser."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.notebook import html_forms
from merging.base import settings
from merging.base.errors import MergingError

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from app.widgets.chart_recorder import RecordedChart

CALLER = "mergescope.view"  # begins the messages about an address


class View:
    """The charts of a page, and its ``notices`` on what it does not show; an unknown chart is a MergingError."""

    def __init__(self, address: str, recorded: Sequence[RecordedChart], notices: Sequence[str]) -> None:
        self.address, self.notices = address, tuple(notices)
        self._recorded = {chart[0].key: chart for chart in recorded}

    @property
    def charts(self) -> list[str]:
        """The keys of the charts, in the page's order."""
        return list(self._recorded)

    def __getitem__(self, key: str) -> go.Figure:
        """The figure of a chart."""
        return self.find(key)[0].draw()

    def table(self, key: str) -> pd.DataFrame:
        """The table that a chart draws."""
        return self.find(key)[0].table.copy()

    def find(self, key: str) -> RecordedChart:
        """A chart as its page draws it: table, options and caption, and the runs and sweeps in it."""
        if key not in self._recorded:
            words = f"The view {self.address} draws no chart {key!r}; its charts are:"
            raise MergingError(" ".join([words, f"{', '.join(self.charts) or 'none'}.", *self.notices]))
        return self._recorded[key]

    def __repr__(self) -> str:
        return f"View({self.address!r}) of {', '.join(self.charts)}"

    def _repr_html_(self) -> str:
        return html_forms.make_page([(self[key], self.find(key)[0].caption) for key in self.charts])


def view(address: str) -> View:
    """The charts of an address from *Link*, with or without its server, such as "masks?run=f2fcd9a9ca4e&ratio=0.5".

    Raises MergingError if there is no such page or run, or if the page reports an error.
    """
    with run_as_app():
        from app.page_text import plain_text
        from app.reading import page_data, step_text
        from app.snapshot import headless

        place, store, app = headless.parse_page_address(address, CALLER), page_data.store(), headless.Headless()
        for run_id in ",".join(value for key, value in place.query if key in step_text.RUN_KEYS).split(","):
            if run_id:  # the page would show another run
                store.get_run(store.resolve_id(run_id))
        recorded = app.open_charts(place, CALLER)
        return View(str(place), recorded, [plain_text(notice) for notice in app.notices[place]])


@contextmanager
def run_as_app() -> Iterator[None]:
    """Run code of the app as a server on this machine would, and leave the process as it was.

    Streamlit replaces the main module, from which a notebook pickles, and warns that no server runs. Pages do not
    download, and start no process in advance.
    """
    from streamlit import config

    from app import startup

    main_module, was_disabled = sys.modules["__main__"], logging.root.manager.disable
    hub = os.environ.get(settings.HUB_VARIABLE)
    startup.skip_warm_up()
    if config.get_option("server.address") is None:
        config.set_option("server.address", "127.0.0.1")
    os.environ[settings.HUB_VARIABLE] = hub or "cached"
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module
        logging.disable(was_disabled)
        if hub is None:
            os.environ.pop(settings.HUB_VARIABLE, None)

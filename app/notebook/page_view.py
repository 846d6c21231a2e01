"""The charts of an address of the app, opened in this process, without a server and without a browser."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.notebook import html_forms
from merging.base import settings
from merging.base.errors import MergingError

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from app.snapshot.headless import PageAddress
    from app.widgets.chart_recorder import RecordedChart

CALLER = "mergescope.view"  # begins the messages about an address
THIS_MACHINE = "127.0.0.1"
RUN_KEYS = ("run", "run_b", "runs")  # the keys of an address with ids of runs


class View:
    """The charts that a page draws at an address: a figure by its key, and the table behind it.

    ``notices`` are the page's sentences on what it does not show.
    """

    def __init__(self, address: str, charts: Mapping[str, RecordedChart], notices: Sequence[str]) -> None:
        self.address, self.notices = address, tuple(notices)
        self._recorded = dict(charts)

    @property
    def charts(self) -> list[str]:
        """The keys of the charts, in the page's order."""
        return list(self._recorded)

    def __getitem__(self, key: str) -> go.Figure:
        """The figure of a chart. Raises MergingError, which lists the charts."""
        from app.snapshot.static_figures import draw_recorded

        return draw_recorded(self._find(key))

    def table(self, key: str) -> pd.DataFrame:
        """The table that a chart draws. Raises MergingError, which lists the charts."""
        return self._find(key)[0].table.copy()

    def sources(self, key: str) -> list[str]:
        """The ids of the runs and sweeps that a chart shows. Raises MergingError, which lists the charts."""
        return [source.id for source in self._find(key)[1]]

    def caption(self, key: str) -> str:
        """What the page says about a chart. Raises MergingError, which lists the charts."""
        return self._find(key)[0].caption

    def _find(self, key: str) -> RecordedChart:
        if key not in self._recorded:
            charts = ", ".join(self._recorded) or "none"
            raise MergingError(
                " ".join([f"The view {self.address} draws no chart {key!r}; its charts are: {charts}.", *self.notices])
            )
        return self._recorded[key]

    def __repr__(self) -> str:
        return f"View({self.address!r}) of {', '.join(self._recorded)}"

    def _repr_html_(self) -> str:
        return html_forms.make_page([(self[key], self.caption(key)) for key in self.charts])


def view(address: str) -> View:
    """The charts of an address from *Link*, with or without its server, such as "masks?run=f2fcd9a9ca4e&ratio=0.5".

    Raises:
        MergingError: there is no such page, a run that the address names is not stored here, or the page reports an
            error.
    """
    with run_as_app():
        from app.page_text import plain_text
        from app.snapshot import headless

        page_address = headless.parse_page_address(address, CALLER)
        _check_runs(page_address)
        app = headless.Headless()
        recorded = app.open_charts(page_address, CALLER)
        notices = map(plain_text, app.notices[page_address])
        return View(str(page_address), {chart[0].key: chart for chart in recorded}, list(notices))


def _check_runs(address: PageAddress) -> None:
    """Raise StoreError if the address names a run that is not stored, where the page would offer others."""
    from app.reading import page_data

    for run_id in (run_id for key, value in address.query if key in RUN_KEYS for run_id in value.split(",") if run_id):
        store = page_data.store()
        store.get_run(store.resolve_id(run_id))


@contextmanager
def run_as_app() -> Iterator[None]:
    """Open pages as a server on this machine does, and leave the caller's process as it was.

    Streamlit replaces the main module, from which a notebook pickles, and warns that no server runs. Pages do not
    download and start no process in advance.
    """
    from streamlit import config

    from app import startup

    main_module, was_disabled = sys.modules["__main__"], logging.root.manager.disable
    hub = os.environ.get(settings.HUB_VARIABLE)
    startup.skip_warm_up()
    if config.get_option("server.address") is None:
        config.set_option("server.address", THIS_MACHINE)
    os.environ[settings.HUB_VARIABLE] = hub or "cached"
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module
        logging.disable(was_disabled)
        if hub is None:
            os.environ.pop(settings.HUB_VARIABLE, None)

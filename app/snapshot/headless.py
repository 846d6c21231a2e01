"""Opens addresses of the app without a browser, in this process, and returns the charts of their pages.

Pages run in Streamlit's own test harness, one at a time, and the one function that draws charts records each of them. A
view in a snapshot therefore has exactly the charts of its page.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from app.session import pages
from app.settings_file import apply_settings
from app.widgets.chart_recorder import RecordedChart, record_charts
from merging.base.errors import MergingError
from merging.base.text import first_few, printable

if TYPE_CHECKING:
    from streamlit.testing.v1 import AppTest

MAIN_FILE = Path(__file__).resolve().parent.parent / "main.py"
MAX_SECONDS = 120  # seconds that a page may take
PAUSE_SECONDS = 0.5  # seconds between two checks of a page that computes
WAITING_ICON = ":material/hourglass_top:"  # the icon of messages of such a page
VALUE_KINDS = ("slider", "select_slider", "selectbox", "button_group", "multiselect", "toggle", "number_input")
MAX_SLIDER_VALUES = 41  # of a slider whose charts are drawn in advance


class SnapshotError(MergingError):
    """A snapshot cannot be written; the text says which lesson or address is at fault and what to change."""


@dataclass(frozen=True)
class PageAddress:
    """A page by its path, and the query that restores a view of it."""

    page: str
    query: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.page + "".join(f"{'&' if n else '?'}{key}={value}" for n, (key, value) in enumerate(self.query))


@dataclass(frozen=True)
class Slider:
    """A control with a chart for every value: its label, its values as text, and the charts."""

    key: str
    label: str
    values: tuple[str, ...]
    drawn: tuple[RecordedChart, ...]
    first: int  # the value with which the view opens


@dataclass
class Headless:
    """The app without a browser. The charts of an opened address are cached, and the page's notices as Markdown."""

    drawn_charts: dict[PageAddress, list[RecordedChart]] = field(default_factory=dict)
    notices: dict[PageAddress, list[str]] = field(default_factory=dict)
    refusals: dict[PageAddress, str] = field(default_factory=dict)  # which value the page did not take; empty if all

    def open_charts(self, address: PageAddress, position: str) -> list[RecordedChart]:
        """The charts of a view, in their order. Raises SnapshotError, which begins with ``position``."""
        if address not in self.drawn_charts:
            app_test = _open_page(address, position)
            self.drawn_charts[address] = _run_page(app_test, address, position)
            self.refusals[address] = _describe_refusal(app_test, address)
            self.notices[address] = [notice.value for notice in (*app_test.info, *app_test.warning)]
        return self.drawn_charts[address]

    def open_chart(self, address: PageAddress, key: str, position: str, allow_other: bool = False) -> RecordedChart:
        """The chart ``key`` of a view; the first chart if the key is empty, or missing and ``allow_other`` is True.

        Raises SnapshotError, which begins with ``position``: where the address is written, such as a step of a lesson.
        """
        recorded = self.open_charts(address, position)
        is_recorded = any(view.key == key for view, _ in recorded)
        return _find_chart(recorded, key if is_recorded or not allow_other else "", address, position)

    def open_slider(
        self, address: PageAddress, key: str, control: str, position: str, sliders_only: bool = False
    ) -> Slider | None:
        """The chart ``key`` at every value of the control ``control`` of a view; at most ``MAX_SLIDER_VALUES``.

        None if ``sliders_only`` is True and the view has no slider with the key ``control``.
        """
        app_test = _open_page(address, position)
        first_charts = _run_page(app_test, address, position)
        if (widget := _find_widget(app_test, control, sliders_only)) is None:
            if sliders_only:
                return None
            raise SnapshotError(f"{position}: the view {address} has no slider or picker {control!r}.")
        values = _list_values(widget, control, position)
        start_index = values.index(widget.value) if widget.value in values else 0
        charts = {start_index: _find_chart(first_charts, key, address, position)}
        for number, value in enumerate(values):
            if number not in charts:
                _find_widget(app_test, control, sliders_only).set_value(value)
                charts[number] = _find_chart(_run_page(app_test, address, position), key, address, position)
        texts = tuple(f"{value:g}" if isinstance(value, int | float) else str(value) for value in values)
        return Slider(control, widget.label, texts, tuple(charts[number] for number in range(len(values))), start_index)


def parse_page_address(address: str, position: str) -> PageAddress:
    """The page and the query of an address from *Link*, with or without its server. Raises SnapshotError."""
    parts = urlsplit(address.strip())
    page = parts.path.strip("/").rpartition("/")[2]
    page_names = {
        Path(value).stem for value in vars(pages).values() if isinstance(value, str) and value.startswith("screens/")
    }
    if page not in page_names - {"home"}:
        page_list = ", ".join(sorted(page_names - {"home"}))
        raise SnapshotError(f"{position}: there is no page {page!r} with charts; pages are {page_list}.")
    return PageAddress(page, tuple(parse_qsl(parts.query)))


def _open_page(address: PageAddress, position: str) -> AppTest:
    from streamlit.testing.v1 import AppTest

    apply_settings()
    app_test = AppTest.from_file(str(MAIN_FILE), default_timeout=MAX_SECONDS).run()
    try:
        app_test.switch_page(f"screens/{address.page}.py")
    except ValueError as error:
        raise SnapshotError(f"{position}: there is no page {address.page!r}.") from error
    app_test.query_params |= parse_qs(urlencode(address.query), keep_blank_values=True)
    return app_test


def _run_page(app_test: AppTest, address: PageAddress, position: str) -> list[RecordedChart]:
    """Run a page until it has computed everything, and return its charts."""
    limit = time.monotonic() + MAX_SECONDS
    while True:
        with record_charts() as recorded:
            app_test.run()
        if not is_waiting(app_test) or time.monotonic() > limit:
            break
        time.sleep(PAUSE_SECONDS)
    if problems := [*(error.value for error in app_test.exception), *(error.value for error in app_test.error)]:
        raise SnapshotError(f"{position}: the view {address} reports: {problems[0]}")
    return recorded


def is_waiting(app_test: AppTest) -> bool:
    """Whether a page still computes: it says so, or it has the button that stops a preview."""
    stops = (str(button.key).startswith("preview_stop_") for button in app_test.button)
    return any(WAITING_ICON in caption.value for caption in app_test.caption) or any(stops)


def _describe_refusal(app_test: AppTest, address: PageAddress) -> str:
    """A sentence about the first value of an address that its control does not show; empty if there is none."""
    for key, asked in parse_qs(urlencode(address.query)).items():
        widget = next((one for kind in VALUE_KINDS for one in app_test.get(kind) if one.key == key), None)
        if widget is None or widget.value is None:
            continue
        shown, is_shown = widget.value if isinstance(widget.value, list | tuple) else [widget.value], False
        if isinstance(widget.value, bool):
            is_shown, choice = asked == [str(widget.value).lower()], "true, false"
        elif options := list(getattr(widget, "options", ())):
            is_shown = sorted(str(widget.format_func(value)) for value in shown) == sorted(asked)
            choice = first_few(options, MAX_SLIDER_VALUES)
        else:
            limits = [getattr(widget, name, None) for name in ("min", "max")]
            choice = " to ".join("any number" if limit is None else f"{limit:g}" for limit in limits)
            with suppress(ValueError):
                is_shown = [float(text) for text in asked] == [float(value) for value in shown]
        if not is_shown:
            wrong = ", ".join(map(printable, asked))
            return f"On the page {address.page} the setting {key} cannot be {wrong}; it can be: {choice}."
    return ""


def _find_chart(recorded: Sequence[RecordedChart], key: str, address: PageAddress, position: str) -> RecordedChart:
    if matching := [recorded_chart for recorded_chart in recorded if not key or recorded_chart[0].key == key]:
        return matching[0]
    chart_list = ", ".join(dict.fromkeys(view.key for view, _ in recorded)) or "none"
    raise SnapshotError(f"{position}: the view {address} draws no chart {key!r}; its charts are: {chart_list}.")


def _find_widget(app_test: AppTest, control: str, sliders_only: bool) -> Any:
    """The slider or, unless ``sliders_only`` is True, the picker with this key; None if there is none."""
    for kind in ("slider",) if sliders_only else ("slider", "select_slider", "selectbox", "button_group"):
        for widget in app_test.get(kind):
            if widget.key == control:
                return widget
    return None


def _list_values(widget: Any, control: str, position: str) -> list[Any]:
    """All values that a slider or picker takes, thinned to at most ``MAX_SLIDER_VALUES`` with both ends."""
    values = list(getattr(widget, "options", ())) or _list_slider_steps(widget, control, position)
    if len(values) <= MAX_SLIDER_VALUES:
        return values
    indices = {round(n * (len(values) - 1) / (MAX_SLIDER_VALUES - 1)) for n in range(MAX_SLIDER_VALUES)}
    shown_index = values.index(widget.value) if widget.value in values else 0
    indices = indices - {min(indices - {0, len(values) - 1}, key=lambda n: abs(n - shown_index))} | {shown_index}
    return [values[n] for n in sorted(indices)]


def _list_slider_steps(widget: Any, control: str, position: str) -> list[Any]:
    if isinstance(widget.value, list | tuple):
        raise SnapshotError(f"{position}: the slider {control!r} has two handles; take one with a single handle.")
    count = round((widget.max - widget.min) / widget.step)
    kind = type(widget.value)
    return [kind(round(widget.min + n * widget.step, 10)) for n in range(count + 1)]

"""What a rerun of every slider and picker of every page costs the server: CPU time of its thread, and bytes sent.

    python tests/bench/reruns.py                       # the bundled benchmark with all runs of the library
    python tests/bench/reruns.py --large               # runs of the size of ViT-L/14: 20 experts of 296 tensors
    python tests/bench/reruns.py --pages masks drift --values 2
    python tests/bench/reruns.py --slowest 30 --sizes  # more of the slowest, and the bytes of every picture and table

A widget that a fragment of a page draws redraws that fragment only, as in a browser. Every option of what switches a
view is tried, so that the widgets of all views are reached, and at most ``--values`` of other widgets. The target is
100 ms at the median and 250 at p95; no picture above 1.5 MB. CPU time counts, as it varies little on a busy machine.
The first number of a page is the time to its first picture; for one page in ``--pages``, after Home and what a server
computes ahead only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as ``merging`` does, here before torch is imported
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tiny
import tiny_library
import torch
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext
from streamlit.testing.v1 import AppTest, app_test, local_script_runner
from streamlit.testing.v1.local_script_runner import LocalScriptRunner

from app import layout, startup
from app.settings_file import apply_settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "home", "merge", "masks", "conflicts", "drift", "features", "learning", "scores", "sweeps", "compare", "report",
    "methods", "models",
)  # fmt: skip
MEDIAN, P95, PICTURE = 100.0, 250.0, 1_500_000
VIEWS = 8  # options at most of what counts as switching views
DEEP = 3  # switches of views, one within the other
PATIENCE = 600  # seconds that a rerun may take on a busy machine
PICKERS = (
    "slider", "select_slider", "selectbox", "radio", "button_group", "multiselect", "checkbox", "toggle",
    "number_input", "text_input",
)  # fmt: skip
PICTURE_KINDS = ("plotly_chart", "imgs")
DRAWN = ("plotly_chart", "dataframe", "arrow_data_frame", "table", "bidi_component")  # what holds figures and tables
STAGE = re.compile(r"^(stage|merge|adapt|edit|exemplars|test_data)\d+")
SKIPPED = ("presentation",)  # widgets of the frame, the same on every page


@dataclass(frozen=True)
class Rerun:
    """One rerun: milliseconds of CPU, those to the first picture (0 without), bytes sent, and the largest message."""

    page: str
    widget: str
    value: str
    milliseconds: float
    first_picture: float
    bytes_sent: int
    largest: int
    largest_is: str
    drawn: dict[str, int]  # bytes of each picture and table


class Probe:
    """Runs a page as the server does, on behalf of a fragment if one is named, and measures it."""

    def __init__(self) -> None:
        self.fragment, self.milliseconds, self.messages, self.pages = "", 0.0, [], {}
        self.started, self.first_picture = 0.0, 0.0
        scripts = ScriptCache()
        app_test.ScriptCache = lambda: scripts  # a server compiles a page once
        make, run = local_script_runner.RerunData, LocalScriptRunner._run_script_thread

        def with_fragment(**fields: Any) -> Any:
            return make(**fields, fragment_id=self.fragment or None)

        def timed(runner: LocalScriptRunner) -> None:
            if self.fragment:
                runner._pages_manager._set_pages(self.pages)
            self.started, self.first_picture = time.thread_time(), 0.0
            run(runner)
            self.milliseconds = self._milliseconds()
            self.pages = runner._pages_manager.get_pages()
            self.messages = list(runner.forward_msgs())

        send = ScriptRunContext.enqueue

        def watch(context: ScriptRunContext, message: Any) -> None:
            if not self.first_picture and _kind(message).startswith(PICTURE_KINDS):
                self.first_picture = self._milliseconds()
            send(context, message)

        ScriptRunContext.enqueue = watch
        local_script_runner.RerunData = with_fragment
        LocalScriptRunner._run_script_thread = timed

    def _milliseconds(self) -> float:
        return 1000 * (time.thread_time() - self.started)

    def run(self, at: AppTest, states: WidgetStates | None = None, fragment: str = "") -> None:
        """Run the page, or one fragment of it, with these states of its widgets."""
        self.fragment = fragment
        tree, chosen = at._tree, states_of(at) if states is None else states
        tree.get_widget_states = lambda: chosen
        at.run()
        if fragment:
            at._tree = tree  # what a fragment draws is a part of the page
        self.fragment = ""

    def fragments(self) -> dict[str, str]:
        """The fragment that draws a widget, by the widget's id."""
        found = {}
        for message in self.messages:
            if message.WhichOneof("type") == "delta" and message.delta.WhichOneof("type") == "new_element":
                element = message.delta.new_element
                proto = getattr(element, element.WhichOneof("type"))
                if identity := getattr(proto, "id", ""):
                    found[identity] = message.delta.fragment_id
        return found

    def rerun(self, page: str, widget: str, value: str) -> Rerun:
        """What was measured last."""
        sizes = [(message.ByteSize(), _kind(message)) for message in self.messages]
        largest, largest_is = max(sizes, default=(0, ""))
        drawn = {name: size for size, name in sizes if name.startswith(DRAWN)}
        total = sum(size for size, _ in sizes)
        return Rerun(page, widget, value, self.milliseconds, self.first_picture, total, largest, largest_is, drawn)


def _kind(message: Any) -> str:
    """What a message draws."""
    if message.WhichOneof("type") != "delta":
        return str(message.WhichOneof("type"))
    if message.delta.WhichOneof("type") != "new_element":
        return str(message.delta.WhichOneof("type"))
    element = message.delta.new_element
    kind = str(element.WhichOneof("type"))
    return f"{kind} {name_of(getattr(element, kind))}".strip()


def name_of(proto: Any) -> str:
    """The key of a widget, from its id."""
    return str(getattr(proto, "id", "")).rpartition("-")[2][-40:]


def name_in_turn(kind: str, widget: Any) -> str:
    """The name of a widget; on Merge, which numbers its stages anew whenever the chain changes, without that number."""
    key = STAGE.sub(r"\1", widget.key or widget.label)
    return f"{kind} {key}"


def widgets(at: AppTest) -> Iterator[tuple[str, Any]]:
    """The sliders and pickers of a page, with their kinds."""
    for kind in PICKERS:
        for widget in at.get(kind):
            if not widget.proto.disabled and widget.key not in SKIPPED:
                yield kind, widget


def options(kind: str, widget: Any) -> list[str]:
    """What a picker offers."""
    return (
        list(widget.options) if kind in {"select_slider", "selectbox", "radio", "button_group", "multiselect"} else []
    )


def changes(kind: str, widget: Any, most: int) -> list[WidgetState]:
    """States of a widget that a user may choose: all options of a switch of views, else a few."""
    proto, found = widget.proto, []
    choices = options(kind, widget)
    if kind in {"radio", "button_group", "selectbox", "select_slider", "multiselect"}:
        switch = kind in {"radio", "button_group"} and len(choices) <= VIEWS
        spread = (
            choices if switch else [choices[place * (len(choices) - 1) // max(1, most)] for place in range(1, most + 1)]
        )
        for choice in dict.fromkeys(spread if choices else []):
            state = WidgetState(id=proto.id)
            if kind in {"radio", "selectbox"}:
                state.string_value = choice
            else:
                state.string_array_value.data[:] = [choice]
            found.append(state)
    elif kind == "slider":
        low, high = proto.min, proto.max
        for part in range(1, most + 1):
            step = proto.step or 1.0
            value = low + round((high - low) * part / (most + 1) / step) * step
            state = WidgetState(id=proto.id)
            state.double_array_value.data[:] = [value] * len(proto.default)
            found.append(state)
    elif kind == "number_input":
        value = float(widget.value or 0)
        found.append(WidgetState(id=proto.id, double_value=min(value + (proto.step or 1), proto.max or value + 1)))
    elif kind in {"checkbox", "toggle"}:
        found.append(WidgetState(id=proto.id, bool_value=not widget.value))
    else:
        found.append(WidgetState(id=proto.id, string_value="a"))
    return found


def value_of(state: WidgetState) -> str:
    """A state as text."""
    kind = state.WhichOneof("value")
    value = getattr(state, kind)
    return str(list(value.data) if hasattr(value, "data") else value)[:40]


def states_of(at: AppTest) -> WidgetStates:
    """The states of all widgets of a page, without those whose values it has given up meanwhile."""
    states = WidgetStates()
    for node in at._tree:
        with contextlib.suppress(KeyError, ValueError):
            if getattr(node, "_widget_state", None) is not None:
                states.widgets.append(node._widget_state)
    return states


def changed(at: AppTest, state: WidgetState) -> WidgetStates:
    """The states of all widgets, one of them changed."""
    states = WidgetStates()
    states.widgets.extend([other for other in states_of(at).widgets if other.id != state.id])
    states.widgets.append(state)
    return states


def explore(probe: Probe, at: AppTest, page: str, most: int, seen: set[str], depth: int = 0) -> Iterator[Rerun]:
    """Change every widget that was not seen before; where that switches views, the widgets there, too."""
    for kind, widget in list(widgets(at)):
        name = name_in_turn(kind, widget)
        if name in seen:
            continue
        seen.add(name)
        before = next((state for state in states_of(at).widgets if state.id == widget.proto.id), None)
        fragment = probe.fragments().get(widget.proto.id, "")
        try:
            states = changes(kind, widget, most)
        except KeyError:  # another choice has taken it away
            continue
        for state in states:
            if before is not None and state == before:
                continue
            probe.run(at, changed(at, state), fragment)
            yield probe.rerun(page, name, value_of(state))
            probe.run(at)
            if at.exception:
                print(f"{page}: {name} {value_of(state)}: {at.exception[0].value}", file=sys.stderr)
            if depth < DEEP and any(name_in_turn(k, w) not in seen for k, w in widgets(at)):
                yield from explore(probe, at, page, most, seen, depth + 1)
        if before is not None:
            probe.run(at, changed(at, before))


def measure(pages: list[str], most: int) -> list[Rerun]:
    """All reruns of some pages; the first drawing of each is measured as a rerun without a widget."""
    probe, found = Probe(), []
    for page in pages:
        at = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=PATIENCE)
        probe.run(at)
        if not found:
            found.append(probe.rerun("home", "", "first drawing"))
            layout.read_ahead(lambda: False)  # as a server does after its first page
        if page != "home":
            at.switch_page(f"screens/{page}.py")
            probe.run(at)
            found.append(probe.rerun(page, "", "first drawing"))
        probe.run(at)
        found.append(probe.rerun(page, "", "drawn again"))
        started, before = time.monotonic(), len(found)
        found.extend(explore(probe, at, page, most, set()))
        print(f"{page}: {len(found) - before} reruns, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return found


def large(folder: Path) -> Path:
    """A benchmark and a library of 20 small experts with as many tensors as a visual tower of ViT-L/14: 24 × 12 + 8."""
    experts = tuple(f"task{number:02}" for number in range(20))
    tiny.LAYERS, tiny.EXPERTS = 24, experts
    tiny.ARCHITECTURE["vision_cfg"]["layers"] = 24
    tiny.family.__defaults__, tiny.write_family.__defaults__ = (experts, 0), (torch.float32, experts)
    made = tiny_library.write(folder / "benchmark")
    tiny_library.measure(made)
    return made


def report_sizes(found: list[Rerun]) -> None:
    """Print the most bytes that each picture and table of each page had."""
    most: dict[tuple[str, str], int] = {}
    for one in found:
        for name, size in one.drawn.items():
            most[one.page, name] = max(size, most.get((one.page, name), 0))
    print(f"pictures and tables, kB (at most {PICTURE / 1e3:.0f})")
    for (page, name), size in sorted(most.items(), key=lambda item: -item[1]):
        print(f"  {size / 1e3:8.1f}  {page:10} {name}{'  TOO LARGE' if size > PICTURE else ''}")


def report(found: list[Rerun], slowest: int) -> None:
    """Print the medians, the slowest and the largest reruns."""
    reruns = [rerun for rerun in found if rerun.widget]
    times = sorted(rerun.milliseconds for rerun in reruns)
    p95 = times[int(0.95 * (len(times) - 1))]
    print(f"{len(times)} reruns: median {statistics.median(times):.0f} ms (at most {MEDIAN:.0f}), "
          f"p95 {p95:.0f} ms (at most {P95:.0f}), longest {times[-1]:.0f} ms of CPU")  # fmt: skip
    for title, key in (("slowest", lambda one: one.milliseconds), ("largest", lambda one: one.largest)):
        print(f"the {title} {slowest}")
        for one in sorted(reruns, key=key, reverse=True)[:slowest]:
            print(f"{one.milliseconds:7.0f} ms {one.bytes_sent / 1e6:6.2f} MB  {one.page:10} {one.widget} = {one.value}"
                  f"  [{one.largest / 1e6:.2f} MB {one.largest_is}]")  # fmt: skip
    print("pages: first picture, first drawing and drawn again, ms")
    for page in dict.fromkeys(one.page for one in found):
        drawn = [one for one in found if one.page == page and not one.widget]
        print(f"  {page:10} {drawn[0].first_picture:6.0f} " + " ".join(f"{one.milliseconds:6.0f}" for one in drawn)
              + f"  {drawn[-1].bytes_sent / 1e6:6.2f} MB, largest {drawn[-1].largest_is}")  # fmt: skip


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", nargs="*", default=list(PAGES), choices=PAGES)
    parser.add_argument("--values", type=int, default=2, help="values at most of a widget that switches no view")
    parser.add_argument("--large", action="store_true", help="runs of 20 experts of 296 tensors")
    parser.add_argument("--json", type=Path, help="write every rerun to this file, too")
    parser.add_argument("--slowest", type=int, default=10, help="how many of the slowest and of the largest to print")
    parser.add_argument("--sizes", action="store_true", help="print the bytes of every picture and table, too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["MERGESCOPE_STORE"] = f"{temporary}/store"
        if given.large:
            os.environ["MERGESCOPE_BENCHMARK"] = str(large(Path(temporary)))
        startup.warm_up = lambda *_ahead: None
        layout.QUIET_SECONDS = 0.0
        startup.load_modules()
        startup.draw_resamples()
        apply_settings()
        found = measure(given.pages, given.values)
    report(found, given.slowest)
    if given.sizes:
        report_sizes(found)
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    main()

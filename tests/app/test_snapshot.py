"""Snapshots: the same bytes for the same input, escaped, private, without an address outside, whole or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import snapshot_lesson
import streamlit as st
from hostile_texts import TEXTS
from tiny_library import NASTY
from viz_tables import drift_case_objective

from app import process_values
from app.reading import page_data
from app.snapshot import live_desk, site, site_folder
from app.snapshot.formulas import mathml
from app.snapshot.headless import Headless, SnapshotError, parse_page_address
from app.snapshot.live_desk import DATA_SUFFIX, DESK_FILE, DESK_TEXTS
from app.snapshot.markdown_html import StepMarkdown
from app.snapshot.site_contents import Site
from app.snapshot.static_figures import make_static_figure, share_parts
from viz.report.private_names import PrivateNames
from viz.report.report_contents import ReportView, Source

DATE, TOOL = "2026-11-23", "https://example.org/mergescope"
SWEPT = "drift?drift_view=two+extreme+cases&shared_directions=1  slider=shared_directions"
VIEWS = ["# a view with every position of a slider", SWEPT]
ADDRESS = re.compile(r"(?:https?:)?//[\w.-]+\.\w")


@pytest.fixture
def tiny_place(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tiny library as the benchmark, an empty store, and the small lesson."""
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(library))
    monkeypatch.setenv("MERGESCOPE_LESSONS", str(snapshot_lesson.write(tmp_path / "lessons")))
    st.cache_data.clear()
    st.cache_resource.clear()
    process_values.forget_values()
    yield
    page_data.job_queue().close()
    st.cache_data.clear()
    st.cache_resource.clear()
    process_values.forget_values()


def made() -> dict[str, bytes]:
    return site.render_site(site.make_site([snapshot_lesson.KEY], VIEWS, DATE, TOOL, lambda words: None))


def hostile(text: str) -> Site:
    """A snapshot of one view, in which everything that may come from a file is this text."""
    table = drift_case_objective(4)
    table = table.assign(task=table["task"].map({task: f"{text}{n}" for n, task in enumerate(table["task"].unique())}))
    view = ReportView("drift_case_objective", table, {}, text, "", text, text, ("1",))
    source = Source("1", "Run", text, ((text, text),), ((text, text),), text)
    return Site(text, DATE, "", (), (make_static_figure("figure-1", (view, (source,))),), (("Mergescope", text),))


@pytest.mark.full
def test_the_same_input_gives_the_same_bytes_and_no_page_leads_outside(tiny_place: None) -> None:
    files = made()
    assert files == made()
    assert {name for name in files if not name.endswith(DATA_SUFFIX)} == {
        "index.html", "small.html", "views.html", "words.html", "sources.html", "snapshot.css", "snapshot.js",
        "plotly.js", "mix.html", "mix.css", "static.js",
    }  # fmt: skip
    assert b"frame-src 'self' file:" in files["small.html"] and b"but on Mix" in files["small.html"]
    pages = {name: content.decode() for name, content in files.items() if name != "plotly.js"}
    for name, text in pages.items():
        assert set(ADDRESS.findall(text)) <= {ADDRESS.findall(TOOL)[0]}, name
        if name.endswith(".html") and name != DESK_FILE:
            assert "default-src 'none'" in text and f"Snapshot of {DATE}" in text
    lesson = pages["small.html"]
    assert "A &amp; B {{ 7 * 7 }}" in lesson and "n = " in lesson
    assert '<a class="word" href="words.html#word-accuracy"' in lesson and "<b>wrong</b>" in lesson
    assert 'data-cells="2"' in lesson and "blank cells, for your marks" in lesson
    assert "<img" not in pages["sources.html"] and NASTY.split("<")[0] in pages["sources.html"]
    slider = json.loads(re.findall(r'id="figure-1">(.*)</script>', pages["views.html"])[0])
    assert slider["values"] == ["0", "1", "2", "3", "4"] and len(slider["drawn"]["frames"]) == 5


@pytest.mark.parametrize("text", list(TEXTS.values())[:12], ids=list(TEXTS)[:12])
def test_texts_of_files_stay_text(text: str) -> None:
    pages = {
        name: content.decode() for name, content in site.render_site(hostile(text)).items() if name.endswith(".html")
    }
    for page in pages.values():
        shown = re.sub(r'<script type="application/json".*?</script>', "", page)  # JSON, in which no tag can begin
        assert not re.search(r"<img|<a href='|<script>alert|</title></style>|\" ?onmouseover", shown)
        assert len(re.findall(r"<script\b", page)) == len(re.findall(r"</script>", page))
    if "7*7" in text:
        assert "{{7*7}}" in pages["views.html"]


def test_private_text_stops_it_and_a_failure_keeps_the_old_one(tmp_path: Path) -> None:
    out = tmp_path / "site"
    site_folder.write_site({"index.html": b"<p>old</p>"}, out, PrivateNames())
    with pytest.raises(SnapshotError, match=r"index\.html was not written: .*zelda"):
        site_folder.write_site({"index.html": b"<p>by zelda</p>"}, out, PrivateNames(names=("zelda",)))
    assert (out / "index.html").read_bytes() == b"<p>old</p>"
    site_folder.write_site({"index.html": b"<p>new</p>", "other.html": b""}, out, PrivateNames())
    assert (out / "index.html").read_bytes() == b"<p>new</p>" and [one.name for one in tmp_path.iterdir()] == ["site"]
    script = live_desk.write_script("desk.json", b'{"title": "by zelda"}')
    with pytest.raises(SnapshotError, match=r"desk\.json\.data\.js was not written: .*zelda"):
        site_folder.write_site({DESK_TEXTS: script}, out, PrivateNames(names=("zelda",)))
    assert set(json.loads((out / site_folder.MANIFEST).read_text("utf-8"))["files"]) == {"index.html", "other.html"}


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine", "utf-8")
    with pytest.raises(SnapshotError, match="is not a snapshot"):
        site_folder.write_site({"index.html": b""}, tmp_path, PrivateNames())
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_cannot_be_shown_is_named(tiny_place: None) -> None:
    def refused(keys: list[str], lines: list[str]) -> str:
        with pytest.raises(SnapshotError) as caught:
            site.make_site(keys, lines, DATE, "", lambda words: None)
        return str(caught.value)

    assert "Did you mean" in refused(["smal"], [])
    assert "There is nothing to write" in refused([], ["# nothing"])
    assert "Line 1 of the views: there is no page 'mask'" in refused([], ["mask?ratio=0.7"])
    assert "got 'slide=shared_directions'" in refused(
        [], ["drift?drift_view=two+extreme+cases  slide=shared_directions"]
    )
    assert "no slider or picker 'ratio'" in refused([], ["drift?drift_view=two+extreme+cases  slider=ratio"])
    assert "draws no chart 'lens'; its charts are: drift_case_weights" in refused(
        [], ["drift?drift_view=two+extreme+cases  chart=lens"]
    )


def test_addresses_of_links_are_places() -> None:
    whole = parse_page_address("http://localhost:8501/masks?run=abc&ratio=0.7", "here")
    assert whole == parse_page_address("masks?run=abc&ratio=0.7", "here")
    assert (whole.page, dict(whole.query)) == ("masks", {"run": "abc", "ratio": "0.7"})
    assert Headless().drawn_charts == {}


def test_frames_share_what_is_equal() -> None:
    figures = [{"layout": {"height": 5}, "data": [{"x": [1, 2], "y": [place, 2]}]} for place in (0, 1, 0)]
    shared = share_parts(figures)
    assert shared["frames"] == [[0, 1], [0, 2], [0, 1]] and shared["values"] == [5, [1, 2], [0, 2]]
    for figure, frame in zip(figures, shared["frames"], strict=True):
        parts = [{name: shared["values"][at] for name, at in shared["parts"][part].items()} for part in frame]
        assert parts == [figure["layout"], *figure["data"]]


def test_markdown_of_lessons_is_html_of_escaped_text() -> None:
    html = str(StepMarkdown().html("An *expert* <b>x</b> & `a<b`, $x_i^2$, \\*.\n\n- one\n- **two**"))
    assert "&lt;b&gt;x&lt;/b&gt; &amp; <code>a&lt;b</code>" in html and "<msubsup>" in html and ", *.</p>" in html
    assert html.endswith("<ul><li>one</li><li><b>two</b></li></ul>")
    assert mathml(r"\unknown{x}") == r"<code>\unknown{x}</code>"
    assert mathml("x" + "^{x" * 60 + "}" * 60).count("<msup>") == 60  # each level is read once
    assert mathml("{" * 2000 + "}" * 2000).startswith("<code>")


@pytest.mark.parametrize(
    "latex",
    [
        r"\text{<img src=x onerror=alert(1)>}", r"\text{&lt;script&gt;}", r"\text{&#60;script&#62;}", "x<script>",
        r"\color{red\" onclick=\"x}{y}", r"\href{javascript:alert(1)}{x}", r"\style{color:red}{x}", r"\class{a}{x}",
    ],
)  # fmt: skip
def test_a_formula_is_nothing_but_a_formula(latex: str) -> None:
    elements = list(ElementTree.fromstring(mathml(latex)).iter())
    drawn = {"math", "semantics", "mrow", "mtext", "mstyle", "mi", "mo", "annotation", "code"}
    assert {element.tag for element in elements} <= drawn
    assert {name for element in elements for name in element.attrib} <= {"encoding", "mathcolor", "stretchy"}

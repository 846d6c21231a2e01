"""The report document: whole, the same every time, asking nothing of a network, and safe to show."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import replace

import pandas as pd
import pytest
import viz_tables
from loading import list_loaded_modules
from report_reader import NOBODY, PROGRAM, Reader, report, source, view

import viz
from viz.chart_registry import find
from viz.report import document, private_names, render
from viz.report.report_contents import ReportError, ReportView

KEYS = [chart.key for chart in viz.charts()]
HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title></style><img src=x onerror=alert(1)>",
    "\"><a href='javascript:alert(1)'>x</a>",
    "<!-- & &amp; &#60;script&#62; -->",
    "evil\u202egnp.exe\u2066\x00\u2028",
    "lone \ud800 surrogate",
    "long " * 400,
]
MARKUP = ["<script>alert(1)</script>", '"onmouseover="alert(1)" x="', "{{7*7}}", "{% if x %}", "<i>x</i>", "&lt;i&gt;"]


@pytest.fixture(scope="module")
def everything() -> str:
    """Every chart there is in one report."""
    views = [
        ReportView(key, getattr(viz_tables, key)(4), note=f"About {key}.", sources=("0123456789ab",)) for key in KEYS
    ]
    return render(report(*views, sources=(source(),), made_with=(("Mergescope", "0.1.0"),)), NOBODY)


@pytest.fixture(scope="module")
def read(everything: str) -> Reader:
    return Reader(everything)


# The document


@pytest.mark.full
def test_every_chart_is_in_one_report(everything: str, read: Reader) -> None:
    assert not read.open
    assert len(everything) < len(document.plotly_js()) + 6_000_000
    assert len(read.data) == len(KEYS)
    assert len(read.found("figure")) == len(KEYS)
    for key, figure, plot in zip(KEYS, read.data, (d for d in read.found("div") if "role" in d), strict=True):
        assert figure["layout"]["meta"]["key"] == key
        assert html.unescape(str(plot["aria-label"])) == figure["layout"]["meta"]["alt"]
        assert find(key).question in read.words
        assert f"About {key}." in read.words
    for said in ("Mergescope 0.1.0", "5c" * 32, "merge:\n  ties: {}", "Contents", "Figure 1."):
        assert said in read.words


@pytest.mark.full
def test_nothing_in_the_document_leads_outside(everything: str, read: Reader) -> None:
    ids = {attributes["id"] for _, attributes in read.elements if attributes.get("id")}
    for tag, attributes in read.elements:
        assert tag not in {"img", "link", "iframe", "object", "embed", "form", "base", "audio", "video", "source"}
        assert not {"src", "srcset", "action", "data", "poster", "ping"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        if "href" in attributes:
            assert tag == "a" and str(attributes["href"]).removeprefix("#") in ids
    assert not re.search(r"url\(|@import|https?:", read.style)
    bare = private_names.ARRAY_PATTERN.sub("", everything.replace(document.plotly_js(), ""))
    assert re.findall(r"\b\w+://[^'\"<]{0,40}|\W//[\w-]+\.\w+", bare) == []


def test_the_policy_names_what_may_run_and_allows_no_request() -> None:
    text = render(report(view(), view("kept_share"), sources=(source(),)), NOBODY)
    read = Reader(text)
    policy = next(meta["content"] for meta in read.found("meta") if meta.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'; ")
    assert "http" not in policy and "*" not in policy and "unsafe-eval" not in policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    program, draw = read.scripts
    assert program == PROGRAM
    digests = [hashlib.sha256(script.encode()).digest() for script in (document.plotly_js(), draw)]
    assert rules["script-src"].split() == [f"'sha256-{base64.b64encode(found).decode()}'" for found in digests]
    assert 0 < text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script")


def test_the_same_report_is_the_same_text_and_of_known_size() -> None:
    made = report(view(), view("kept_share"), sources=(source(),))
    digests = {hashlib.sha256(render(made, NOBODY).encode()).hexdigest() for _ in range(2)}
    assert len(digests) == 1
    program, size = len(document.plotly_js()), len(render(made, NOBODY))
    assert program < size < program + 300_000


def test_tables_and_recipes_can_be_left_out() -> None:
    made = report(sources=(source(),))
    assert len(Reader(render(made, NOBODY)).found("table")) == 1
    read = Reader(render(replace(made, tables=False, recipes=False), NOBODY))
    assert not read.found("table") and not read.found("pre")
    assert "5c" * 32 in read.words


def test_inputs_that_runs_share_are_listed_once() -> None:
    others = source(id="b" * 12, title="Other"), source(id="c" * 12, title="Third", digests=(("x", "7d" * 32),))
    words = Reader(render(report(sources=(source(), *others)), NOBODY)).words
    assert words.count("5c" * 32) == 1 and words.count("the same files as those of TIES") == 1
    assert words.count("7d" * 32) == 1


@pytest.mark.full
def test_a_long_table_is_cut_and_says_so() -> None:
    long = ReportView("saliency_matrix", viz_tables.saliency_matrix(20))
    words = Reader(render(report(long), NOBODY)).words
    assert f"{len(long.table):,} rows" in words and "of which the first 1,000 are shown" in words


def test_numbers_that_are_none_are_empty_cells() -> None:
    table = viz_tables.task_accuracy(2)
    table.loc[table.index[0], "expert"] = float("nan")
    read = Reader(render(report(ReportView("task_accuracy", table)), NOBODY))
    assert "nan" not in read.words.lower().split()


def test_a_note_has_paragraphs_and_a_title_keeps_the_question() -> None:
    read = Reader(render(report(view(title="Mine", note="One.\nTwo.\n\nThree.", place="masks?ratio=0.6")), NOBODY))
    assert len([p for p in read.found("p") if p.get("class") == "note"]) == 2
    assert len(read.found("br")) == 1
    assert "Mine" in read.words and find("saliency_tensor").question in read.words
    assert "masks?ratio=0.6" in read.words


def test_there_must_be_something_to_report() -> None:
    with pytest.raises(ReportError, match="nothing in the report"):
        render(replace(report(), views=()), NOBODY)


# Text of anybody's


@pytest.mark.parametrize("evil", HOSTILE)
def test_text_of_anybodys_stays_text(evil: str) -> None:
    table = viz_tables.saliency_tensor(2)
    table["expert"] = pd.Series([evil, "Digits"], dtype=object)
    odd = ReportView("saliency_tensor", table, {}, evil, evil, evil, f"masks?expert={evil}", (evil,))
    at_fault = source(id=evil, title=evil, recipe=f"title: {evil}", facts=((evil, evil),))
    read = Reader(render(report(odd, title=evil, introduction=evil, sources=(at_fault,)), NOBODY))
    assert not read.open
    assert len(read.scripts) == 2 and len(read.data) == 1
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"img", "iframe"}
    assert not [attributes for tag, attributes in read.elements if tag == "a" and attributes["href"][0] != "#"]
    shown = read.words + json.dumps(read.data, ensure_ascii=False)
    assert not re.search("[\u202e\u2066\u2028\x00\ud800]", read.words)
    assert "\u2028" not in shown


@pytest.mark.parametrize("evil", MARKUP)
def test_markup_in_any_text_is_shown_as_it_is(evil: str) -> None:
    table = viz_tables.saliency_tensor(2).assign(kept=True)  # those that keep it are named in the picture's words
    table["expert"] = pd.Series([f"cell {evil}", "Digits"], dtype=object)
    table[f"column {evil}"] = 0
    run = source(
        id="run", kind=f"kind {evil}", title=f"run {evil}", recipe=f"recipe {evil}\nmerge {evil}",
        facts=((f"fact {evil}", f"value {evil}"),), digests=((f"input {evil}", f"digest {evil}"),),
    )  # fmt: skip
    other = replace(run, id=f"id {evil}", title=f"other {evil}")
    view_texts = (f"heading {evil}", f"note {evil}", f"caption {evil}", f"place {evil}")
    odd = ReportView("saliency_tensor", table, {}, *view_texts, (run.id, other.id))
    made = report(odd, title=f"title {evil}", introduction=f"first\nline {evil}", sources=(run, other))
    read = Reader(render(replace(made, made_with=((f"program {evil}", f"version {evil}"),)), NOBODY))
    for place in (
        "cell", "column", "kind", "run", "recipe", "merge", "fact", "value", "input", "digest", "id", "other",
        "heading", "note", "caption", "place", "title", "line", "program", "version",
    ):  # fmt: skip
        assert f"{place} {evil}" in read.words, place
    assert not read.open and len(read.scripts) == 2 and len(read.data) == 1
    plot = next(attributes for attributes in read.found("div") if attributes.get("role") == "img")
    assert set(plot) == {"class", "id", "role", "aria-label"} and "cell" in str(plot["aria-label"])
    assert not {"i", "img"} & {tag for tag, _ in read.elements}


def test_only_what_is_made_here_is_marked_safe() -> None:
    texts = {path.name: path.read_text("utf-8") for path in document.REPORT_FOLDER.glob("*.j2")}
    marked = {(name, value) for name, text in texts.items() for value in re.findall(r"(\S+)\s*\|\s*safe\b", text)}
    in_page = {("page.html.j2", value) for value in ("style", "body", "script")}
    in_report = {("report.html.j2", value) for value in ("section.figure", "report.kept")}
    assert marked == in_page | in_report | {("figure.html.j2", "figure")}
    assert not [name for name, text in texts.items() if re.search(r"{%-?\s*autoescape", text)]


@pytest.mark.full
def test_the_templates_are_loaded_only_to_write() -> None:
    assert "jinja2" not in list_loaded_modules("import viz.report.document")
    assert "jinja2" in list_loaded_modules("from viz.report import templates; templates.environment()")


def test_a_figure_cannot_end_the_script_that_holds_it() -> None:
    table = viz_tables.saliency_tensor(2)
    table["expert"] = ["</script><b>", "<!--<script>"]
    text = document.figure_json(viz.draw("saliency_tensor", table))
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text)["layout"]["meta"]["key"] == "saliency_tensor"


def test_clicks_lassos_and_code_are_left_out() -> None:
    large = viz_tables.feature_map(4, 2400)
    figure = viz.draw("feature_map", large)
    assert {trace.type for trace in figure.data} == {"scattergl"}
    plain = json.loads(document.figure_json(figure))
    assert {trace["type"] for trace in plain["data"]} == {"scatter"}
    assert "dragmode" not in plain["layout"]
    assert not any("customdata" in trace for trace in plain["data"])


# Many runs


def test_recipes_of_many_runs_are_folded_away_and_a_figure_names_a_few() -> None:
    for count in (document.MAX_NAMED_RUNS, document.MAX_NAMED_RUNS + 2):
        sources = tuple(source(id=f"{place:012}", title=f"Run number {place}") for place in range(count))
        sweep = source(id="5" * 12, kind="Sweep", title="A sweep") if count > document.MAX_NAMED_RUNS else None
        shown = view(sources=tuple(one.id for one in sources))
        found = Reader(render(report(shown, sources=(*sources, *([sweep] if sweep else []))), NOBODY))
        many = count > document.MAX_NAMED_RUNS
        assert len(found.found("pre")) == count + many
        assert len(found.found("details")) == 1 + (count + 1 if many else 0)  # the table's comes first
        assert ("2 more" in found.words) == many
        said = f"1 figure of {count} runs"
        assert (f"{said} and 1 sweep" if many else said) in found.words


def test_a_figure_without_a_caption_says_what_it_is() -> None:
    words = Reader(render(report(view(caption="Drawn."), view()), NOBODY)).words
    assert "Figure 1. Drawn." in words and f"Figure 2. {find('saliency_tensor').title}." in words

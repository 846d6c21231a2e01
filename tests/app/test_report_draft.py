"""The report is kept in the store under the token in the address: after a reload, in two tabs, and where that fails."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import viz_tables
from damage import damage_bytes
from faulty_disk import fail_writing
from page_harness import find_buttons, forget, open_page, press, serve_several
from page_harness import words as escaped
from streamlit.testing.v1 import AppTest

from app.reading import page_data
from app.session import report_codec, report_keeper
from app.session.report_draft import ReportDraft
from merging.base.errors import MergingError, StoreError
from merging.study.runs.drafts import Drafts
from merging.study.runs.run_store import Store
from viz import charts as all_charts
from viz.report.report_contents import ReportView, Source

ADD, IN = "Add to report", "In the report"
EARLIER = "report_earlier"


def words(at: AppTest) -> str:
    """All text on the page, as it is read."""
    return escaped(at).replace("\\", "")


def draft(at: AppTest) -> ReportDraft:
    found: ReportDraft = at.session_state["_report_keeper"].read_draft()
    return found


def token(at: AppTest) -> str:
    return str(at.query_params["report_token"])


def labels(at: AppTest) -> list[str]:
    return [button.label for button in find_buttons(at, ADD, IN)]


def field(at: AppTest, name: str) -> Any:
    """A field by the beginning of its key, which ends otherwise after its report was read again."""
    return next(one for one in (*at.text_input, *at.text_area, *at.toggle) if str(one.key).startswith(name))


def titled(at: AppTest) -> list[str]:
    return [kept.view.title for kept in draft(at).views]


def write_report(at: AppTest) -> None:
    """Make a report of both charts of averages on Scores, with a title, notes and another order."""
    assert "report_token" not in at.query_params
    press(at, ADD)
    press(at, ADD)
    at.switch_page("screens/report.py").run()
    field(at, "report_title").set_value("What I saw").run()
    field(at, "view_note_1").set_value("Look at <b>this</b>.").run()
    field(at, "view_title_0").set_value("In and out").run()
    press(at, "Down")
    field(at, "report_recipes").set_value(False).run()
    assert not at.exception and not at.error


@pytest.fixture(scope="module")
def written(library: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store with such a report, and its token."""
    store = tmp_path_factory.mktemp("written") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MERGESCOPE_STORE", str(store))
        patch.setenv("MERGESCOPE_BENCHMARK", str(library))
        forget()
        at = open_page("scores", {})
        write_report(at)
        page_data.job_queue().close()
        forget()
    return store, token(at)


@pytest.fixture
def first(open_app: Any, library: Path, written: tuple[Path, str], tmp_path: Path) -> AppTest:
    """That report, opened by its link, in a store of its own."""
    shutil.copytree(written[0], tmp_path / "store")
    opened: AppTest = open_app("report", library, report_token=written[1])
    return opened


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_reload_finds_the_report_with_all_that_was_written(open_app: Any, library: Path) -> None:
    first = open_app("scores", library)
    write_report(first)
    again = open_app("report", library, report_token=token(first))
    assert not again.exception and not again.error
    assert field(again, "report_title").value == "What I saw"
    assert field(again, "view_note_1").value == "Look at <b>this</b>."
    assert titled(again) == ["", "In and out"] and not field(again, "report_recipes").value
    made, before = (draft(at).report(()) for at in (again, first))
    assert made == before
    for one, other in zip(made.views, before.views, strict=True):
        pd.testing.assert_frame_equal(one.table, other.table)
    scores = open_app("scores", library, report_token=token(first))
    assert labels(scores) == [IN, IN, ADD, ADD]


def test_a_change_of_a_note_writes_no_table(first: AppTest, tmp_path: Path) -> None:
    before = files(tmp_path / "store" / "drafts")
    field(first, "view_note_0").set_value("More.").run()
    after = files(tmp_path / "store" / "drafts")
    assert {name for name in after if after[name] != before.get(name)} == {"draft"}
    assert len(after) == 3
    next(button for button in first.button if button.label == "Remove").click().run()
    assert len(files(tmp_path / "store" / "drafts")) == 2


def test_the_fields_begin_with_the_report_in_the_browser_too(open_app: Any, library: Path, first: AppTest) -> None:
    second = open_app("report", library, report_token=token(first))
    for name, kept in (("report_title", "What I saw"), ("view_note_1", "Look at <b>this</b>.")):
        assert field(second, name).proto.default == kept  # what the browser sends if it interrupts the script
    field(second, "report_title").set_value("Of the second tab").run()
    before = field(first, "report_title").key
    first.run()
    assert field(first, "report_title").proto.default == "Of the second tab"
    assert field(first, "report_title").key != before  # the browser keeps the text of a field with the same key


def test_two_tabs_hold_one_report(open_app: Any, library: Path, first: AppTest) -> None:
    second = open_app("report", library, report_token=token(first))
    field(second, "report_title").set_value("Of the second tab").run()
    field(first, "view_note_0").set_value("Of the first tab").run()
    assert field(first, "report_title").value == "Of the second tab"
    second.run()
    assert field(second, "view_note_0").value == "Of the first tab"
    second.switch_page("screens/masks.py").run()
    press(second, ADD)
    first.run()
    assert len(draft(first).views) == 3 and len({kept.number for kept in draft(first).views}) == 3
    next(button for button in first.button if button.label == "Remove").click().run()
    second.switch_page("screens/report.py").run()
    assert len(draft(second).views) == 2 and token(second) == token(first)


def test_a_report_that_was_deleted_in_another_tab_is_said_and_kept_again(
    open_app: Any, library: Path, first: AppTest
) -> None:
    second = open_app("report", library, report_token=token(first))
    old = token(first)
    press(second, "Delete this report")
    assert "The report is empty" in words(second) and "report_token" not in second.query_params
    first.run()
    assert "The report was deleted from the store" in words(first) and len(draft(first).views) == 2
    field(first, "report_title").set_value("Still here").run()
    assert "deleted from the store" not in words(first) and token(first) != old
    assert field(open_app("report", library, report_token=token(first)), "report_title").value == "Still here"


@pytest.mark.parametrize(("page", "wrong"), [("report", "A" * 22), ("scores", "../../x"), ("home", "<b>x</b>")])
def test_a_token_of_no_report_is_said(open_app: Any, library: Path, page: str, wrong: str) -> None:
    at = open_app(page, library, report_token=wrong)
    assert not at.exception and not at.error
    assert "There is no report under the token in this address" in words(at)
    assert "report_token" not in at.query_params
    if page == "scores":
        press(at, ADD)
        assert "no report under" not in words(at) and token(at) != wrong


def test_every_damage_is_said(open_app: Any, library: Path, first: AppTest, tmp_path: Path) -> None:
    (folder,) = (tmp_path / "store" / "drafts").iterdir()
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in whole:
        (_, wrong), *_ = list(damage_bytes(whole[name]))[3:]
        (folder / name).write_bytes(wrong)
        at = open_app("report", library, report_token=token(first))
        assert not at.exception and not at.error
        assert "is damaged" in words(at) and "The report is empty" in words(at)
        folder.mkdir(exist_ok=True)
        for other, data in whole.items():
            (folder / other).write_bytes(data)


def test_only_who_has_the_address_sees_the_report_where_several_people_work(
    open_app: Any, library: Path, first: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = open_app("report", library)
    assert "What I saw" in alone.selectbox(key=EARLIER).options[0]
    for how in ("switch", "address"):
        with monkeypatch.context() as patch:
            serve_several(patch, how)
            other = open_app("report", library)
            assert not [box for box in other.selectbox if box.key == EARLIER]
            assert "What I saw" not in words(other) and "report_token" not in other.query_params
            named = open_app("report", library, report_token=token(first))
            assert field(named, "report_title").value == "What I saw"


@pytest.mark.full
def test_another_report_is_begun_and_the_earlier_one_opened(open_app: Any, library: Path, first: AppTest) -> None:
    old = token(first)
    press(first, "New report")
    assert "The report is empty" in words(first) and "report_token" not in first.query_params
    press(first, "Open")
    assert token(first) == old and field(first, "report_title").value == "What I saw"
    first.switch_page("screens/scores.py").run()
    assert token(first) == old


def test_a_store_that_cannot_be_written_to_leaves_the_report_in_the_session(
    open_app: Any, library: Path, tmp_path: Path
) -> None:
    at = open_app("scores", library)
    with fail_writing(tmp_path / "store", errno.EROFS):
        press(at, ADD)
        assert not at.exception and len(draft(at).views) == 1
        assert "The report exists in this session only" in words(at) and "Read-only file system" in words(at)
        at.switch_page("screens/report.py").run()
        assert "MERGESCOPE" in words(at) and "report_token" not in at.query_params
    field(at, "report_title").set_value("Now").run()
    assert "in this session only" not in words(at)
    assert field(open_app("report", library, report_token=token(at)), "report_title").value == "Now"


def test_links_and_views_do_not_carry_the_token(first: AppTest) -> None:
    first.switch_page("screens/scores.py").run()
    first.session_state["link_id_ood_scatter"] = True
    first.run()
    assert token(first)
    assert not [code.value for code in first.code if token(first) in str(code.value)]
    assert all("report_token=" not in kept.view.place for kept in draft(first).views)
    assert "this link leaves that out" in words(first)


# Plain data


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.full
def test_the_table_of_every_chart_comes_back_as_it_was() -> None:
    for chart in all_charts():
        table = getattr(viz_tables, chart.key)(5)
        for some in (table, table.iloc[::-1].head(50), table.head(0)):
            pd.testing.assert_frame_equal(report_codec.read_table(report_codec.write_table(some)), some, obj=chart.key)


def test_all_kinds_of_columns_and_options_come_back() -> None:
    table = pd.DataFrame(
        {
            "float32": np.array([0.1, np.nan, np.inf], np.float32), "int8": np.array([1, -2, 3], np.int8),
            "bool": [True, False, True], "text": ["a", None, "ü\u2028"],
            "kind": pd.Categorical(["x", "y", "x"], ordered=True),
        },
        index=[3, 1, 2],
    )  # fmt: skip
    options = {
        "fit": (float("nan"), np.float64(0.1), np.int64(3), True), "groups": ["a", None], "rank": table,
        "notes": {"x": "y"}, "selected": None, "inner": {"deep": [({"t": table},)]},
    }  # fmt: skip
    draft = ReportDraft("Heading", "Words", tables=False)
    draft.allow("fisher")
    source = Source("id", "Run", "t", (("a", "b"),), (), "recipe")
    draft.add(ReportView("kept_share", table, {"by": "role"}, "t", "n", "c", "masks?x=1", ("id",)), 10, [source])
    coded = through_json(report_codec.encode(draft))
    parts = {name: make() for name, make in report_codec.make_table_writers(draft).items()}
    again = report_codec.decode(coded, parts.__getitem__)
    assert again == draft and len(parts) == 1
    pd.testing.assert_frame_equal(again.views[0].view.table, table)
    view = ReportView("x", table, options)
    draft.add(view, 0, [])
    within = {name: make() for name, make in report_codec.make_table_writers(draft).items()}
    assert len(within) == 4
    coded = through_json(report_codec.encode(draft))["views"][1]
    coded |= {"key": "kept_share", "options": f'{{"mapping": [["by", {coded["options"]}]]}}'}
    (kept,) = report_codec.decode(through_json(report_codec.encode(draft)) | {"views": [coded]}, within.get).views
    draft.views = [kept]
    assert draft.find("kept_share", table, {"by": options})


def test_what_cannot_be_stored_is_refused_in_a_sentence() -> None:
    draft = ReportDraft()
    draft.add(ReportView("x", pd.DataFrame(), {"of": {1, 2}}), 0, [])
    with pytest.raises(StoreError, match=r"option that cannot be stored.*set"):
        report_codec.encode(draft)
    with pytest.raises(StoreError, match="cannot be stored"):
        report_codec.write_table(pd.DataFrame({"a": pd.Series(["a", 1], dtype=object)}))


def test_a_chart_of_another_version_is_left_out() -> None:
    draft = ReportDraft()
    table = viz_tables.kept_share(3)
    for key, options in (("kept_share", {"by": "role"}), ("of_tomorrow", {}), ("kept_share", {"of_tomorrow": 1})):
        draft.add(ReportView(key, table, options), 0, [])
    parts = report_codec.make_table_writers(draft)
    again = report_codec.decode(report_codec.encode(draft), lambda name: parts[name]())
    assert [kept.view.key for kept in again.views] == ["kept_share"]


def test_no_change_of_stored_data_is_more_than_a_sentence() -> None:
    """Checksums find changes of the disk; these would pass them."""
    draft = ReportDraft("Heading")
    draft.add(ReportView("kept_share", viz_tables.kept_share(3), {"by": "role"}), 0, [])
    parts = {name: make() for name, make in report_codec.make_table_writers(draft).items()}
    readers: list[tuple[bytes, Callable[[bytes], object]]] = [
        (json.dumps(report_codec.encode(draft)).encode(), lambda raw: report_codec.decode(json.loads(raw), parts.get)),
        *((raw, report_codec.read_table) for raw in parts.values()),
    ]
    for raw, read in readers:
        for place in range(0, len(raw), max(1, len(raw) // 100)):
            for wrong in (raw[:place] + b"[]" + raw[place:], raw[:place] + b"0" + raw[place + 1 :], raw[:place]):
                try:
                    read(wrong)
                except (MergingError, ValueError) as error:
                    assert isinstance(error, MergingError | json.JSONDecodeError), repr(error)


def test_keeping_asks_for_new_tables_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    stored, made = Drafts(Store(libraries=())), []
    monkeypatch.setattr(report_codec, "write_table", lambda table: made.append(1) or b"{}")
    draft, name = ReportDraft(), ""
    for number in range(3):
        draft.add(ReportView("kept_share", viz_tables.kept_share(3)), 0, [])
        name = stored.store(
            report_keeper.DRAFT_KIND, report_codec.encode(draft), name, report_codec.make_table_writers(draft)
        )
        assert len(made) == number + 1

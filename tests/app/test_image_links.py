"""Every thumbnail of a benchmark's image opens it on the page Image, with the runs on screen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from compared_runs import LWPTV, PRETRAINED, TIES, link_to_both
from page_harness import press, runs, select

from app.views.compare import image_agreement as compare_images
from app.widgets import image_link
from merging.study.runs.run_store import Store

ROOT = Path(__file__).resolve().parents[2]


def links(at: Any, label: str = image_link.LINK_LABEL) -> list[dict[str, list[str]]]:
    """The queries of the links to the page Image of that label."""
    protos = [one.proto for one in at.get("page_link") if one.proto.label == label]
    assert all(proto.page == "image" for proto in protos)
    return [parse_qs(proto.query_string.removeprefix("?")) for proto in protos]


def test_from_compare_both_runs_go_along(open_app: Any, compared: Path) -> None:
    at = open_app("compare", compared, **link_to_both(compared), compare_view="images", right_runs="both right")
    known = runs(compared)
    queries = links(at)
    assert len(queries) == compare_images.IMAGES_PER_PAGE
    for query in queries:
        assert query["runs"] == [f"{known[TIES].id},{known[LWPTV].id}"]
        assert re.fullmatch(r"\w+:reporting:\d+", query["image"][0])
    title, shown = at.session_state["_found_images"]
    assert title == "both right, TIES (sum, λ 0.3) and Task Arithmetic w/ LwPTV" and shown == [
        query["image"][0] for query in queries
    ]
    press(at, "Choose")  # the chosen image stands alone above the others, with a link of its own
    assert len(links(at)) == compare_images.IMAGES_PER_PAGE + 1
    at = open_app(
        "compare", compared, **link_to_both(compared, TIES, PRETRAINED), compare_view="images", right_runs="both right"
    )
    assert {query["runs"][0] for query in links(at)} == {known[TIES].id}  # the page shows the pretrained model anyway


def test_from_the_lasso_all_of_it_can_be_looked_at(open_app: Any, compared: Path) -> None:
    known = runs(compared)
    at = open_app("features", compared, runs=f"{known[LWPTV].id},{known[TIES].id}", map="PCA")
    at = select(at, "feature_map", [(known[TIES].id, f"letters:{number}") for number in (2, 5, 7)])
    queries = links(at)
    assert {query["image"][0] for query in queries} == {f"letters:choosing:{number}" for number in (2, 5, 7)}
    assert {query["runs"][0] for query in queries} == {f"{known[TIES].id},{known[LWPTV].id}"}
    (first,) = links(at, "See them in Image")
    assert first == queries[0] and at.session_state["_found_images"][1] == [query["image"][0] for query in queries]


def test_the_address(compared: Path) -> None:
    stored = {run.title: run for run in Store(compared / "none", libraries=(compared / "runs",)).list_runs()}
    some = [stored[PRETRAINED], stored[TIES], stored[TIES], stored[LWPTV], stored["CAT Merging"]]
    ids = f"{stored[TIES].id},{stored[LWPTV].id}"
    assert image_link.image_query("digits:reporting:3", some) == {"image": "digits:reporting:3", "runs": ids}
    assert image_link.image_query("digits:reporting:3", some[:1]) == {"image": "digits:reporting:3"}


def test_no_page_shows_an_image_without_the_link() -> None:
    """Pictures are drawn where the link is; the page Image itself has its own. A QR code shows no image."""
    drawing = {
        path.relative_to(ROOT / "app").as_posix()
        for path in (ROOT / "app").rglob("*.py")
        if "st.image(" in path.read_text("utf-8") and "image" not in path.relative_to(ROOT / "app").parts
    }
    drawing -= {"widgets/view_link.py", "views/lessons/class_panel.py"}
    assert drawing == {"widgets/thumbnails.py", "views/learning/image_routing.py"}
    assert all("image_link.draw_image_link(" in (ROOT / "app" / path).read_text("utf-8") for path in drawing)

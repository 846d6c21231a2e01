"""The Compare page: where two runs agree, and the images behind each cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tiny
from compared_runs import CAT, EMR, LWPTV, TIES, link_to_both
from page_harness import charts, click, runs, words

from app.views.compare import image_agreement as compare_images
from app.views.compare import run_pair

IMAGES = tiny.REPORTING * (len(tiny.EXPERTS) + len(tiny.OUTSIDE))


# Images


def test_agreement_counts_every_image_once(open_app: Any, compared: Path) -> None:
    at = open_app("compare", compared, **link_to_both(compared), compare_view="images")
    assert not at.exception
    assert charts(at) == 1
    known = runs(compared)
    of = run_pair.RunPair(known[TIES], known[LWPTV])
    images = run_pair.build_image_rows(of)
    table = compare_images.count_agreement(images)
    assert table["count"].sum() == IMAGES == len(images)
    counted = {(row["a"], row["b"]): row["count"] for row in table.to_dict("records")}
    right = [images[side] == images["truth"] for side in ("predicted_a", "predicted_b")]
    for a in (True, False):
        for b in (True, False):
            words_of = tuple("right" if it else "wrong" for it in (a, b))
            assert counted[words_of] == ((right[0] == a) & (right[1] == b)).sum()
    assert f"n = {IMAGES} images" in words(at)


def test_a_click_on_a_cell_shows_its_images(open_app: Any, compared: Path) -> None:
    at = open_app("compare", compared, **link_to_both(compared), compare_view="images")
    at = click(at, "compare_agreement", "right", "right")
    assert not at.exception
    assert at.button_group(key="right_runs").value == "both right"
    assert ", both right." in words(at)
    shown = [caption.value for caption in at.caption if "  \nA: " in caption.value]
    assert len(shown) == compare_images.IMAGES_PER_PAGE
    assert all(value.split("  \n")[0].strip("*") in value.split("  \nA: ")[1] for value in shown)
    at = click(at, "compare_agreement")  # the empty selection that follows every redraw
    assert at.button_group(key="right_runs").value == "both right"


def test_images_of_a_run_with_several_models(open_app: Any, compared: Path) -> None:
    link = link_to_both(compared, TIES, EMR)
    at = open_app("compare", compared, **link, compare_view="images", compared_data_sets="in domain")
    assert not at.exception
    assert "McNemar" in words(at)
    at = open_app(
        "compare", compared, **link, compare_view="images", compared_data_sets="out of domain", right_runs="both wrong"
    )
    assert not at.exception
    assert "McNemar" not in words(at) and "means over its models" in words(at)
    assert "of 4)" in words(at).replace("\\", "")


def test_images_without_answers(open_app: Any, compared: Path) -> None:
    at = open_app("compare", compared, **link_to_both(compared, CAT, TIES), compare_view="images")
    assert not at.exception
    assert charts(at) == 0
    assert f"These are not stored for **{CAT}**: its scores come from elsewhere" in words(at)


def test_small_p_values_are_readable() -> None:
    assert [compare_images.format_p_value(p) for p in (0.5, 0.031, 3.2e-7)] == ["0.5", "0.031", "3.2·10⁻⁷"]
    assert compare_images.frequency_in_words(0.7) == "more often than not"
    assert compare_images.frequency_in_words(0.01) == "once in 100 times"

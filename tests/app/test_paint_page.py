"""Painting on the page Masks: gestures, undo, fills, what one starts from, the address, and the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hostile_texts import TEXTS
from page_harness import charts, click, press, runs, words
from streamlit.testing.v1 import AppTest

from app.session.painting import Painting
from app.session.painting_state import PAINTING_KEY, StoredPainting
from app.views.masks import paint_link
from merging.images.benchmarks.benchmark import Benchmark
from merging.methods.factor_rules import rules_text
from merging.recipes.chain_text import parse_chain
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run import Run, read_parameters
from merging.study.runs.run_store import Store

LWPTV = "Task Arithmetic w/ LwPTV"
CANVAS = "manual_canvas"
TENSOR = "visual.transformer.resblocks.1.mlp.c_fc.weight"
Paint = Callable[..., AppTest]


@pytest.fixture
def paint(open_app: Any, library: Path) -> Paint:
    """A function that opens the canvas of the run with masks, with more in the address."""

    def open_canvas(**query: str) -> AppTest:
        at = open_app("masks", library, run=runs(library)[LWPTV].id, painting="true", **query)
        assert not at.exception
        return at

    return open_canvas


def painting(at: AppTest) -> Painting:
    kept = at.session_state[PAINTING_KEY]
    assert isinstance(kept, StoredPainting)
    return kept.painting


def rows(at: AppTest) -> dict[str, list[str]]:
    """{expert: names of the tensors whose factor is not 1}."""
    now = painting(at)
    return {
        expert: [name for name, value in zip(now.tensors, factors, strict=True) if value != 1]
        for expert, factors in zip(now.experts, now.factors, strict=True)
        if (factors != 1).any()
    }


def link_to_merge(at: AppTest) -> dict[str, str]:
    """The query of the link that makes a run of the painting."""
    (link,) = [element for element in at.get("page_link") if element.proto.label == "Make it a run"]
    from urllib.parse import parse_qs

    return {key: values[0] for key, values in parse_qs(link.proto.query_string).items()}


# Gestures


@pytest.mark.full
def test_a_click_paints_a_cell_a_row_a_block_or_all(paint: Paint) -> None:
    at = paint()
    assert charts(at) == 3 and "painted_factors" not in at.query_params
    click(at, CANVAS, "digits", TENSOR, "", "")
    assert rows(at) == {"digits": [TENSOR]}
    assert at.query_params["painted_factors"] == "b1/t.*.mlp.c_fc.weight/e.digits=0"
    click(at, CANVAS)  # the empty selection after every redraw
    assert len(painting(at).strokes) == 1
    at.segmented_control(key="paint_brush").set_value("0.5").run()
    click(at, CANVAS, "flags", "", "", "")
    assert (painting(at).factors[2] == 0.5).all()
    click(at, CANVAS, "", "", "block 0", "")
    assert all((painting(at).factors[:, i] == 0.5).all() for i, t in enumerate(painting(at).tensors) if ".0." in t)
    at.segmented_control(key="paint_brush").set_value("value").run()
    at.number_input(key="paint_factor").set_value(-1.5).run()
    click(at, CANVAS, "", TENSOR, "", "")
    assert (painting(at).factors[:, painting(at).tensors.index(TENSOR)] == -1.5).all()
    click(at, CANVAS, "", "", "", "")
    assert (painting(at).factors == -1.5).all() and at.query_params["painted_factors"] == "all=-1.5"
    assert not at.exception


def test_undo_redo_and_the_number_of_strokes(paint: Paint) -> None:
    at = paint()
    assert at.button(key="paint_undo").disabled and at.button(key="paint_redo").disabled
    for block in ("block 0", "block 1"):
        click(at, CANVAS, "", "", block, "")
    both = at.query_params["painted_factors"]
    press(press(at, "Undo (2)"), "Undo (1)")
    assert rows(at) == {} and "painted_factors" not in at.query_params
    press(press(at, "Redo (2)"), "Redo (1)")
    assert at.query_params["painted_factors"] == both == "b0-1=0"


@pytest.mark.full
def test_pickers_paint_the_same_without_a_mouse(paint: Paint) -> None:
    at = paint()
    at.multiselect(key="paint_experts").select("digits").select("flags")
    at.selectbox(key="paint_where").select("in blocks").run()
    assert at.button(key="paint_fill").disabled
    at.multiselect(key="paint_which_section").select("block 1").run()
    press(at, "Paint 0")
    by_hand = paint()
    for expert in ("digits", "flags"):
        for tensor in painting(by_hand).tensors:
            if ".resblocks.1." in tensor:
                click(by_hand, CANVAS, expert, tensor, "", "")
    np.testing.assert_array_equal(painting(at).factors, painting(by_hand).factors)
    for where, column, name, part in (
        ("in kinds of layer", "part", "ln_1", ".ln_1."), ("in roles", "role", "shift", "bias"),
        ("in tensors", "tensor", TENSOR, TENSOR),
    ):  # fmt: skip
        at = paint()
        at.selectbox(key="paint_where").select(where).run()
        at.multiselect(key=f"paint_which_{column}").select(name).run()
        press(at, "Paint 0")
        assert rows(at)["circles"] and all(part in tensor for tensor in rows(at)["circles"])
    press(paint(), "Paint 0")


@pytest.mark.full
def test_what_one_can_start_from(paint: Paint, library: Path) -> None:
    table = runs(library)[LWPTV].table("saliency")
    final = table["final"].to_numpy().reshape(4, -1)
    at = paint()
    start = at.selectbox(key="paint_start")
    assert "the gradient map (first order)" not in start.options  # it is not measured

    def started(name: str) -> np.ndarray:
        at.selectbox(key="paint_start").select(name).run()
        press(at, "Start")
        assert not at.exception
        return painting(at).factors

    np.testing.assert_array_equal(started("nothing"), 0)
    assert "0 of 32 tensors" in words(at)
    np.testing.assert_array_equal(started("this run's mask"), final)
    assert "100.0%" in words(at)  # in common with LwPTV's mask
    at.slider(key="ratio").set_value(0.9).run()
    np.testing.assert_array_equal(painting(at).factors, final)  # the slider leaves the painting alone
    stricter = started("LwPTV at the ratio above")
    assert stricter.sum() < final.sum()
    numels = table["numel"].to_numpy()[: final.shape[1]]
    drawn = started("random, with as many scalars")
    assert 0 < numels[drawn[0] == 1].sum() <= numels[stricter.any(axis=0)].sum()
    at.selectbox(key="paint_start").select("the k largest by saliency").run()
    at.number_input(key="paint_k").set_value(3).run()
    assert started("the k largest by saliency").sum() == 12
    np.testing.assert_array_equal(started("everything"), 1)
    assert len(painting(at).strokes) == 6


@pytest.mark.full
def test_a_budget_says_what_is_over_it(paint: Paint) -> None:
    at = paint(tensor_budget="30")
    assert at.number_input(key="tensor_budget").value == 30
    assert ":red[" in words(at) and "2 over the budget of 30" in words(at)
    click(at, CANVAS, "", "", "block 0", "")
    assert "within the budget of 30" in words(at) and ":red[" not in words(at)
    assert "20 of 32 tensors" in words(at)


# The address


@pytest.mark.full
def test_a_link_restores_the_factors_and_a_wrong_one_says_why(paint: Paint) -> None:
    at = paint(painted_factors="b0=0+e.digits/r.shift=1.5")
    assert (painting(at).factors == 1.5).sum() > 5 and not painting(at).strokes
    assert at.query_params["painted_factors"] == "b0=0+e.digits/r.shift=1.5"  # a link's own words stay
    press(paint(painted_factors="all=0.5"), "Paint 0")
    for text, says in (
        ("b7=0", "blocks 0 to 1"), ("e.nobody=0", "nobody"), ("b0=nan", "factor"), ("<b>x</b>", "rule 1"),
        ("~abc.def", "no painting"), ("~../../x.y", "no painting"), ("x" * 30_000, "20,000"),
    ):  # fmt: skip
        at = paint(painted_factors=text)
        assert "cannot be shown" in at.warning[0].value and says in at.warning[0].value, text
        assert (painting(at).factors == 1).all() and charts(at) == 3


@pytest.mark.full
def test_the_browsers_back_undoes(paint: Paint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.session.painting_state.STALE_SECONDS", 1000.0)  # seconds: a busy machine may be slow
    at = paint()
    click(at, CANVAS, "", "", "block 0", "")
    first = at.query_params["painted_factors"]
    click(at, CANVAS, "", "", "block 1", "")
    at.query_params["painted_factors"] = first  # as the browser's Back asks for
    at.run()
    assert len(painting(at).strokes) == 2  # at first it may be a request from before the stroke
    monkeypatch.setattr("app.session.painting_state.STALE_SECONDS", 0.0)
    at.query_params["painted_factors"] = first
    at.run()
    assert (len(painting(at).strokes), len(painting(at).undone_strokes)) == (1, 1)
    del at.query_params["painted_factors"]
    at.run()
    assert (len(painting(at).strokes), len(painting(at).undone_strokes)) == (0, 2)
    assert "painted_factors" not in at.query_params


def jumble(at: AppTest) -> np.ndarray:
    """Paint different factors in every cell, too many for the address."""
    factors = np.random.default_rng(0).choice([0.0, 0.25, 0.5, 2.0], painting(at).factors.shape)
    painting(at).replace(factors, "a jumble")
    at.run()
    return factors


@pytest.mark.full
def test_what_is_too_long_for_the_address_is_a_draft_in_the_store(paint: Paint, tmp_path: Path) -> None:
    at = paint()
    factors = jumble(at)
    text = at.query_params["painted_factors"]
    assert text.startswith("~") and len(text) < 100
    np.testing.assert_array_equal(painting(paint(painted_factors=text)).factors, factors)
    press(at, "Paint 0")
    at.query_params["painted_factors"] = text
    painting(at).undo()  # the draft has every table of the session
    np.testing.assert_array_equal(painting(paint(painted_factors=text)).factors, factors)
    assert len(list((tmp_path / "store" / "drafts").iterdir())) == 1
    shutil.rmtree(tmp_path / "store" / "drafts")
    at = paint(painted_factors=text)
    assert "no painting" in at.warning[0].value and (painting(at).factors == 1).all()


def test_a_store_that_cannot_be_written_to_costs_the_address_alone(
    paint: Paint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from merging.base.errors import StoreError
    from merging.study.runs.drafts import Drafts

    def refuse(*_: object, **__: object) -> str:
        raise StoreError("The store is read-only.")

    monkeypatch.setattr(Drafts, "store", refuse)
    at = paint()
    factors = jumble(at)
    assert not at.exception and "painted_factors" not in at.query_params
    assert "address does not contain" in words(at)
    at.run()
    np.testing.assert_array_equal(painting(at).factors, factors)
    press(at, "Undo (1)")
    assert "address does not contain" not in words(at)


def test_two_sessions_do_not_disturb_each_other(paint: Paint) -> None:
    one, other = paint(), paint()
    click(one, CANVAS, "digits", TENSOR, "", "")
    assert rows(other.run()) == {}
    click(other, CANVAS, "flags", TENSOR, "", "")
    assert (rows(one.run()), rows(other)) == ({"digits": [TENSOR]}, {"flags": [TENSOR]})


@pytest.mark.full
def test_leaving_the_page_keeps_the_painting(paint: Paint) -> None:
    at = paint()
    click(at, CANVAS, "digits", TENSOR, "", "")
    at.switch_page("screens/home.py").run()
    at.switch_page("screens/masks.py")
    at.query_params["painting"] = "true"
    if "painted_factors" in at.query_params:
        del at.query_params["painted_factors"]
    at.run()
    assert rows(at) == {"digits": [TENSOR]} and at.query_params["painted_factors"]


# The run


@pytest.mark.full
def test_a_painted_lwptv_mask_scores_as_the_stored_run_to_the_image(
    paint: Paint, library: Path, tmp_path: Path
) -> None:
    stored, benchmark = runs(library)[LWPTV], Benchmark.load(library)
    at = paint()
    at.selectbox(key="paint_start").select("LwPTV at the ratio above").run()
    press(at, "Start")
    chain = parse_chain(link_to_merge(at)["chain"])
    assert [key for key, _ in chain.edits] == ["manual"] and "in place of LwPTV" in words(at)
    recipe = Recipe.build(*chain.merge, chain.edits, stored.recipe.pretrained, dict(stored.recipe.experts),
                          count_dead_params=stored.recipe.count_dead_params)  # fmt: skip
    made = execute(recipe, Store(tmp_path / "made", libraries=()), benchmark=benchmark, keep_model=False)
    pd.testing.assert_frame_equal(_scores(made), _scores(stored))


def _scores(run: Run) -> pd.DataFrame:
    assert run.scores is not None
    return run.scores.sort_values(["task", "split"]).reset_index(drop=True)


def test_hostile_names_come_back_from_the_address(paint: Paint) -> None:
    experts = [name for name in TEXTS.values() if name.strip()]
    tensors = read_parameters(
        pd.DataFrame([("visual.proj", "projection", "proj", "output", 0), ("visual.x", "linear", "x", "block 1", 1)],
                     columns=["tensor", "role", "part", "section", "order"])
    )  # fmt: skip
    factors = np.ones((len(experts), 2))
    factors[::2, 0] = 0.5
    rules = paint_link.fit_rules(factors, experts, tensors)
    np.testing.assert_array_equal(paint_link.read_factors(rules_text(rules), experts, tensors), factors)
    at = paint(painted_factors=rules_text(rules))
    assert not at.exception and "cannot be shown" in at.warning[0].value

"""The third part of the chain on Merge: what adapts the merged model, and the images that a chain learns from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from page_harness import words

from merging.methods import registry


def box(at: Any) -> Any:
    return next(one for one in at.selectbox if one.label == "Then adapt it with")


def test_an_adapt_is_chosen_with_controls_of_its_own_and_goes_into_the_link(open_app: Any, tiny_folder: Path) -> None:
    at = open_app("merge", tiny_folder, chain="task_arithmetic")
    assert "Images to learn from" not in words(at)
    at = box(at).select("surgery").run()
    assert not at.exception and not at.error
    labels = {slider.label for slider in at.slider}
    assert {bound.label for bound in registry.find_adapt("surgery").params.bounds().values()} <= {
        label.partition(" $")[0] for label in labels
    }
    assert at.query_params["chain"] == "task_arithmetic;surgery"
    assert "Marked ‡. Per task in domain" in words(at)
    assert "It needs unlabeled test data." in words(at)
    at = box(at).select_index(0).run()
    assert at.query_params["chain"] == "task_arithmetic"


def test_the_papers_protocol_is_one_click_away_and_marked(open_app: Any, tiny_folder: Path) -> None:
    at = open_app("merge", tiny_folder, chain="adamerging")
    protocol = next(one for one in at.get("button_group") if one.label == "Adapts on")
    assert protocol.value == "choosing"  # held out by default
    assert "Adapted on other test images" in words(at)
    at = protocol.select("reporting").run()
    assert at.query_params["chain"] == "test_data:split=reporting;adamerging"
    assert "† Adapted on these images" in words(at)
    assert "split: reporting" in at.code[0].value


def test_what_learns_in_vain_is_said_before_it_runs(open_app: Any, tiny_folder: Path) -> None:
    assert "learns for one random mask of dare" in words(open_app("merge", tiny_folder, chain="dare;adamerging"))
    assert "learns are not used" in words(open_app("merge", tiny_folder, chain="adamerging;wemoe"))
    for chain in ("lwptv;adamerging;surgery", "dare;ties"):
        text = words(open_app("merge", tiny_folder, chain=chain))
        assert "learns for" not in text and "learns are not used" not in text


def test_an_adapt_on_one_model_per_task_is_refused_with_the_reason(open_app: Any, tiny_folder: Path) -> None:
    at = open_app("merge", tiny_folder, chain="emr")
    at = box(at).select("surgery").run()
    assert not at.exception
    assert "already gives every task a model of its own" in at.error[0].value

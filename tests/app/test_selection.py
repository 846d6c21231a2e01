"""One selection of tensor, expert and image for all pages, in the session and in the address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compared_runs import link_to_both
from page_harness import click, picker, words

TENSOR = "visual.transformer.resblocks.0.attn.out_proj.weight"


def test_a_tensor_stays_chosen_from_page_to_page(open_app: Any, compared: Path) -> None:
    at = open_app("masks", compared)
    at = click(at, "saliency_matrix", "digits", TENSOR)
    assert (picker(at, "tensor").value, picker(at, "expert").value) == (TENSOR, "digits")
    for page, shown in (("conflicts", ("tensor",)), ("drift", ()), ("masks", ("tensor", "expert"))):
        for key in ("tensor", "expert"):
            at.query_params.pop(key, None)  # the link to another page need not carry it
        at.switch_page(f"screens/{page}.py").run()
        assert not at.exception
        assert (at.query_params["tensor"], at.query_params["expert"]) == (TENSOR, "digits")
        assert [picker(at, kind).value for kind in shown] == [TENSOR, "digits"][: len(shown)]
        assert "Chosen tensor" not in words(at)  # the map of the network shows it on each of these pages


@pytest.mark.full
def test_a_page_that_cannot_show_the_selection_says_so(open_app: Any, compared: Path) -> None:
    assert "Chosen expert" not in words(open_app("scores", compared, expert="digits"))  # which frames its task
    at = open_app("methods", compared, tensor="visual.<b>proj</b>", expert="digits")
    assert "Chosen tensor: **visual\\.\\<b\\>proj\\<\\/b\\>**" in words(at)
    assert "Chosen expert: **Digits**" in words(at)
    next(button for button in at.button if button.key == "clear_selection").click().run()
    assert "Chosen" not in words(at)
    assert "tensor" not in at.query_params


@pytest.mark.full
def test_a_tensor_that_a_view_lacks_is_kept(open_app: Any, compared: Path) -> None:
    at = open_app("conflicts", compared, tensor="visual.ln_post.weight")
    assert picker(at, "tensor").value is None
    assert "is not among these linear layers" in words(at)
    at.switch_page("screens/masks.py").run()
    assert picker(at, "tensor").value == "visual.ln_post.weight"


@pytest.mark.full
def test_an_image_stays_chosen(open_app: Any, compared: Path) -> None:
    at = open_app("compare", compared, **link_to_both(compared), compare_view="images", right_runs="both right")
    button = next(button for button in at.button if button.label == "Choose")
    name = button.key.removeprefix("choose_")
    at = button.click().run()
    assert at.query_params["image"] == name
    assert "**Your image**, both right." in words(at)
    at = open_app(
        "compare", compared, **link_to_both(compared), compare_view="images", right_runs="both wrong", image=name
    )
    assert "**Your image**, both right." in words(at)
    at = open_app("features", compared, image=name)  # of the other half
    assert not at.exception
    assert "is not among the images on this page" in words(at)
    at = open_app("scores", compared, image=name)
    assert "Chosen image" in words(at)

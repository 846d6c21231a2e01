"""The joint space of one layer on the Conflicts page."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
from page_harness import charts, click, picker, words

from app.views.conflicts import linear_layers
from merging.study.analysis import drm_joint_space as analysis

VIEW = "joint space of DRM"


# The panel


def test_the_panel_of_a_layer(open_app: Any, library: Any) -> None:
    at = open_app("conflicts", library, conflicts_view=VIEW)
    assert not at.exception
    assert charts(at) == 4
    said = words(at)
    assert "with 100.00% of the energy" in said and "mean of |x| over a block" in said
    assert "DRM, Fig. 3" in said
    at = click(at, "joint_energy", "flags")
    assert not at.exception
    assert picker(at, "expert").value == "flags"


@pytest.mark.full
def test_the_panel_follows_its_controls(open_app: Any, library: Any) -> None:
    layer = "visual.transformer.resblocks.0.mlp.c_proj.weight"
    at = open_app(
        "conflicts", library, conflicts_view=VIEW, tensor=layer, direction="V, on top of each other", joint_ratio="0.8"
    )
    assert not at.exception
    assert picker(at, "tensor").value == layer
    assert "experts' matrices stacked" in words(at) and "The smallest 80%" in words(at)
    at.slider(key="rank_cut").set_value(0.1).run()
    at.selectbox(key="ranking").select("all together").run()
    assert not at.exception
    assert "all matrices together" in words(at)


def test_long_decompositions_ask_first(open_app: Any, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "estimated_seconds", lambda *size: 75.0)
    at = open_app("conflicts", library, conflicts_view=VIEW)
    assert charts(at) == 0
    assert f"{len(tiny.EXPERTS)} matrices of" in words(at) and "about 1 min 15 s" in words(at)
    at.button(key="decompose").click().run()
    assert not at.exception and charts(at) == 4
    at.slider(key="joint_ratio").set_value(0.2).run()
    assert charts(at) == 4  # kept: it does not ask again


def test_only_the_last_decompositions_are_kept() -> None:
    linear_layers.find_cached_decomposition.clear()
    first, *others = (linear_layers.find_cached_decomposition("run", f"layer {n}", False) for n in range(5))
    assert linear_layers.find_cached_decomposition("run", "layer 4", False) is others[-1]
    assert linear_layers.find_cached_decomposition("run", "layer 0", False) is not first
    linear_layers.find_cached_decomposition.clear()

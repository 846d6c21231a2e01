"""Models & runs: the list of models and the fit report state one distance, and "about" where it is an estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import random_towers
import torch
from models_page import table
from safetensors.torch import save_file
from streamlit.testing.v1 import AppTest
from torch import Tensor

from app.reading import listed_models
from merging.models.inspection import fit_check

MIDDLE = random_towers.MIDDLE


def moved(base: dict[str, Tensor], size: float) -> dict[str, Tensor]:
    """A model at a relative distance of ``size`` from the base."""
    norm = torch.stack([value.norm() for value in base.values()]).norm()
    noise = {name: torch.randn(value.shape, generator=DRAW) for name, value in base.items()}
    scale = size * norm / torch.stack([value.norm() for value in noise.values()]).norm()
    return {name: value + scale * noise[name] for name, value in base.items()}


DRAW = torch.Generator().manual_seed(5)


@pytest.fixture
def folder(own_models: Path) -> Path:
    for path in own_models.iterdir():
        path.unlink()
    base = random_towers.tower(0, **MIDDLE)
    states = {"pretrained": base, "near": moved(base, 0.0411), "far": moved(base, 0.485), "beyond": moved(base, 0.52)}
    states["same"] = base
    for name, state in states.items():
        save_file(state, own_models / f"{name}.safetensors")
    return own_models


def stated(at: AppTest) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """{model: its origin} of the list, and {expert: (change, verdict)} of the fit report."""
    assert not at.exception
    rows = table(at)
    listed = rows[rows["folder"] == "clip"].set_index("name")["fits"].to_dict()
    report = next(frame.value for frame in at.dataframe if "Verdict" in frame.value)
    return listed, dict(zip(report["Expert"], zip(report["Change"], report["Verdict"], strict=True), strict=True))


def test_small_models_have_their_exact_distance(open_app: Any, library: Path, folder: Path) -> None:
    listed, report = stated(open_app("models", library))
    assert report["near"] == ("4.11%", "fine-tuned") and report["far"] == ("48.50%", "fine-tuned")
    for name in ("near", "far"):
        assert listed[name] == f"pretrained, changed by {report[name][0]}"
    assert listed["beyond"] == "none of these" and listed["same"] == "pretrained, unchanged"
    assert report["same"] == ("0.00%", "the pretrained model itself")


def test_large_models_have_an_estimate(
    open_app: Any, library: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed_models, "MAX_SMALL_BYTES", 10)
    monkeypatch.setattr(fit_check, "READ_ALL_BYTES", 10)
    listed, report = stated(open_app("models", library))
    assert report["near"][0].startswith("about 4.") and report["near"][1] == "fine-tuned"
    assert listed["near"] == f"pretrained, changed by {report['near'][0]}"
    assert report["far"] == ("48.50%", "fine-tuned")  # so near to the limit that every number was read
    assert listed["far"].startswith("pretrained?, changed by about ")
    assert listed["beyond"].startswith("pretrained?, changed by about ")
    assert listed["same"] == "pretrained, unchanged in a sample"

"""What can be watched of a run that is learning: the losses and the coefficients that it has kept so far."""

from __future__ import annotations

from pathlib import Path

import torch

from merging.engine.learning import learning_so_far
from merging.engine.learning.learning_state import LearningState

EXPERTS = ("a", "b")


def written(path: Path) -> Path:
    """The file of a run that has kept three steps of losses, and coefficients of two tensors."""
    kept = LearningState(path, "run")
    state = {
        "losses": torch.tensor([[1.0, 2.0], [0.5, 1.5], [0.25, 1.25]], dtype=torch.float64),
        "value.visual.proj": torch.tensor([0.3, 0.4], dtype=torch.float64),
        "value.x": torch.tensor([0.1, 0.2], dtype=torch.float64),
        "mean.x": torch.zeros(2),
        "steps": torch.tensor(3),
    }
    kept.offer("merge", lambda: state)
    kept.write()
    return path


def test_losses_and_coefficients_are_those_of_every_expert(tmp_path: Path) -> None:
    path = written(tmp_path / "run.safetensors")
    losses = learning_so_far.read_losses(path, EXPERTS)
    assert losses.to_dict("list") == {
        "step": [0, 0, 1, 1, 2, 2], "expert": ["a", "b"] * 3, "loss": [1.0, 2.0, 0.5, 1.5, 0.25, 1.25]
    }  # fmt: skip
    rows = learning_so_far.read_coefficients(path, EXPERTS).set_index(["tensor", "expert"])["coefficient"]
    assert rows.to_dict() == {
        ("visual.proj", "a"): 0.3, ("visual.proj", "b"): 0.4, ("x", "a"): 0.1, ("x", "b"): 0.2
    }  # fmt: skip


def test_nothing_is_watched_before_the_file_is_there_or_of_other_experts(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    assert learning_so_far.read_losses(path, EXPERTS).empty and learning_so_far.read_coefficients(path, EXPERTS).empty
    path.write_bytes(b"half a file")
    assert learning_so_far.read_losses(path, EXPERTS).empty
    path.unlink()
    assert learning_so_far.read_losses(written(path), ("a", "b", "c")).empty

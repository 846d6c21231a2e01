"""MASS against plain NumPy in float64, the identities of its parts, and its score for images of unknown tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import golden_adapt
import numpy as np
import pytest
import torch
from golden_adapt import TASKS
from numpy.typing import NDArray
from torch import Tensor

import merging
from merging.base.errors import ParameterError
from merging.engine.evaluation.unknown_task import choose_heads
from merging.engine.modules.mixed_tower import tower_tensors
from merging.engine.modules.modules import Modules
from merging.images.image_encoder import Encoder
from merging.methods.adapts import mass
from merging.methods.adapts.mass import MassParams
from merging.models.checkpoint import MappingCheckpoint

IMAGES = torch.cat([task.images for task in golden_adapt.images().values()])
Array = NDArray[np.float64]
BLOCK = "visual.transformer.resblocks."


def adapted(params: dict[str, Any] | None = None, tasks: Sequence[str] = TASKS, **options: Any) -> Modules:
    base, experts = golden_adapt.models()
    given = {"architecture": golden_adapt.ARCHITECTURE, "device": "cpu", "merge": "tsv_m"} | options
    modules = merging.merge(
        base, {task: experts[task] for task in tasks}, adapt=("mass", params or {}), **given
    ).modules
    assert isinstance(modules, Modules)
    return modules


def encoder(state: dict[str, Tensor], modules: Modules) -> Encoder:
    """A tower by a plain state dict."""
    tensors = tower_tensors(MappingCheckpoint(state, "plain"), torch.device("cpu"), torch.float64)
    return Encoder(modules.architecture, tensors)


# --- the reference ---------------------------------------------------------------------------------------------------


def truncated(vector: Array, share: int) -> tuple[Array, Array, Array]:
    left, values, right = np.linalg.svd(vector, full_matrices=False)
    rank = max(min(vector.shape) // share, 1)
    return left[:, :rank], values[:rank], right[:rank]


def orthogonal(matrix: Array) -> Array:
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left @ right


def model_of(tasks: list[str], scaling: float) -> dict[str, Tensor]:
    """The pretrained model plus TSV-M of some of the tasks, a share of 1/K of the rank for each."""
    base, experts = golden_adapt.models()
    state = {}
    for name, value in base.items():
        vectors = [(experts[task][name] - value).numpy() for task in tasks]
        if value.ndim == 2:
            each = [truncated(vector, len(TASKS)) for vector in vectors]
            left = orthogonal(np.concatenate([left for left, _, _ in each], axis=1))
            right = orthogonal(np.concatenate([right for _, _, right in each]))
            change = left @ np.diag(np.concatenate([values for _, values, _ in each])) @ right
        else:
            change = np.mean(vectors, axis=0)
        state[name] = value + scaling * torch.from_numpy(np.asarray(change))
    return state


def weights_of(row: Array, weight: str) -> Array:
    """One image's weights, by the class token that enters a linear map."""
    base, experts = golden_adapt.models()
    residuals = []
    for task in TASKS:
        _, _, right = truncated((experts[task][weight] - base[weight]).numpy(), len(TASKS))
        residuals.append(np.linalg.norm(row - right.T @ (right @ row)))
    standard = -(np.array(residuals) - np.mean(residuals)) / (np.std(residuals, ddof=1) + 1e-6)
    return np.exp(standard) / np.exp(standard).sum()


LAYERS = {"in_proj": "attn.in_proj_weight", "out_proj": "attn.out_proj.weight", "c_fc": "mlp.c_fc.weight",
          "c_proj": "mlp.c_proj.weight"}  # fmt: skip


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"layer": "in_proj", "block": 0, "threshold": 0.3},
        {"layer": "c_proj", "most": 1, "scaling": 0.7},
        {"layer": "out_proj", "block": 1, "threshold": 0.0, "most": 2},
    ],
    ids=str,
)
def test_routing_and_features_are_the_reference_s(params: dict[str, Any]) -> None:
    modules = adapted(params)
    given = MassParams(**params)
    weight = f"{BLOCK}{1 if given.block is None else given.block}.{LAYERS[given.layer]}"
    merged = encoder(modules.merged.state_dict(), modules)
    rows: dict[str, Tensor] = {}
    merged(IMAGES, lambda name, x: rows.update({name: x}))
    tokens = rows[weight.removeprefix("visual.")].reshape(
        len(IMAGES), -1, rows[weight.removeprefix("visual.")].shape[1]
    )
    routing, named, features = modules.routing(IMAGES), modules.named_tasks(IMAGES), modules.features(IMAGES)
    assert routing is not None and named is not None
    sizes = set()
    for at in range(len(IMAGES)):
        expected = weights_of(tokens[at, 0].numpy(), weight)
        assert np.allclose(routing[at].numpy(), expected, atol=1e-9)
        taken = [k for k in np.argsort(-expected) if expected[k] > given.threshold][: given.most]
        taken = sorted(taken or [int(np.argmax(expected))])
        sizes.add(len(taken))
        assert named[at].nonzero()[:, 0].tolist() == taken
        plain = encoder(model_of([TASKS[k] for k in taken], given.scaling), modules)(IMAGES[at : at + 1])
        assert golden_adapt.relative_distance(features[at : at + 1], plain) < 1e-9
        assert (
            golden_adapt.relative_distance(modules.features(IMAGES[at : at + 1]), plain) < 1e-9
        )  # whatever is beside it
    assert max(sizes) == min(given.most, 2 if given.threshold else given.most)  # several are taken where they may be


def test_all_tasks_at_once_are_tsv_m() -> None:
    modules = adapted({"threshold": 0.0, "most": 3})
    merged = encoder(modules.merged.state_dict(), modules)(IMAGES)
    assert golden_adapt.relative_distance(modules.features(IMAGES), merged) < 1e-9


def test_one_task_alone_is_its_own_and_needs_no_standard() -> None:
    modules = adapted(tasks=TASKS[:1])
    assert modules.routing(IMAGES).tolist() == [[1.0]] * len(IMAGES)
    assert modules.features(IMAGES[:0]).shape == (0, 8)


def test_tasks_are_taken_by_weight_and_at_least_one() -> None:
    shares = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.26, 0.25, 0.25, 0.24], [0.1, 0.15, 0.7, 0.05]])
    chosen = mass.select_tasks(shares, MassParams(threshold=0.2, most=3))
    assert chosen.tolist() == [[True, True, False, False], [True, True, True, False], [False, False, True, False]]
    assert mass.select_tasks(shares, MassParams(threshold=1.0)).sum(dim=1).tolist() == [1, 1, 1]


def test_a_direction_that_only_one_task_has_is_its_own() -> None:
    bases = [torch.eye(4, dtype=torch.float64)[k : k + 1] for k in range(3)]
    found = mass.weights(torch.eye(4, dtype=torch.float64)[1:2], [*bases, None])
    assert found.argmax() == 1 and found[0, 0] == pytest.approx(float(found[0, 3])) and float(found.sum()) == 1.0


def test_edits_change_the_first_pass_and_not_what_is_stored() -> None:
    plain, edited = adapted(), adapted(edits=[("magnitude", {"prune_ratio": 0.5})])
    for name in plain.stored[TASKS[0]].infos:
        assert torch.equal(plain.stored[TASKS[0]].read(name), edited.stored[TASKS[0]].read(name))
    assert not torch.equal(plain.routing(IMAGES), edited.routing(IMAGES))


def test_a_block_that_the_tower_has_not_is_refused() -> None:
    with pytest.raises(ParameterError, match="mass: block must be below 2, the number of blocks; got 2"):
        adapted({"block": 2})


def test_no_image_is_asked_for_and_tables_say_what_is_stored() -> None:
    base, experts = golden_adapt.models()
    result = merging.merge(base, experts, "tsv_m", adapt="mass", device="cpu", architecture=golden_adapt.ARCHITECTURE)
    assert {"modules"} <= set(result.tables) and "routing" not in result.tables and not result.warnings
    assert result.tables["modules"]["part"].tolist() == ["task vector"] * 3 + ["pretrained tower"]


def test_the_largest_cosine_among_the_named_tasks_chooses_head_and_class() -> None:
    heads = {
        "one": torch.eye(3)[:2],
        "two": torch.eye(3)[[2]],
        "three": torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.6, 0.8]]),
    }
    features = torch.tensor([[0.0, 5.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.1, 0.2]])
    named = torch.tensor([[True, True, True], [False, True, True], [True, True, True]])
    chosen, classes = choose_heads(features, named, heads)
    assert chosen.tolist() == [0, 2, 2] and classes.tolist() == [1, 0, 1]

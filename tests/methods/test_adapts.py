"""What the adapts must be beside the exact cases: identities between them, plain models and plain arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import golden_adapt
import pytest
import torch
from golden_adapt import TASKS, State
from torch import Tensor

import merging
from merging.engine.modules.mixed_tower import tower_tensors
from merging.engine.modules.modules import Modules
from merging.images import batch_sizes
from merging.images.image_encoder import Encoder
from merging.methods.adapts import surgery, twin, wemoe
from merging.methods.learning import entropies
from merging.methods.slot import Slot
from merging.models.checkpoint import MappingCheckpoint
from merging.models.families import classify_parameters

IMAGES = golden_adapt.images()
OWN = IMAGES[TASKS[0]].images
MLP = ("mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias")


def adapted(
    key: str, params: dict[str, Any], *, experts: State | None = None, merged: Any = None, **options: Any
) -> Modules:
    base, all_experts = golden_adapt.models()
    chosen = all_experts if experts is None else experts
    images = {task: IMAGES.get(task, IMAGES[TASKS[0]]) for task in chosen}
    given = {"exemplars" if key == "twin" else "test_data": images, "architecture": golden_adapt.ARCHITECTURE}
    return merging.merge(base, chosen, params=merged, adapt=(key, params), device="cpu", **(given | options)).modules


def features(state: State, modules: Modules, images: Tensor = OWN) -> Tensor:
    """Features by a plain state dict."""
    tensors = tower_tensors(MappingCheckpoint(state, "plain"), torch.device("cpu"), torch.float64)
    return Encoder(modules.architecture, tensors)(images)


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> bool:
    return golden_adapt.relative_distance(found, expected) <= tolerance


# --- surgery ---------------------------------------------------------------------------------------------------------


def test_surgery_without_steps_changes_nothing_and_so_does_an_unknown_task() -> None:
    modules = adapted("surgery", {"rank": 3, "steps": 0})
    plain = features(modules.merged.state_dict(), modules)
    assert torch.equal(modules.features(OWN, TASKS[0]), modules.features(OWN)) and close(modules.features(OWN), plain)
    assert sum(tensor.numel() for tensor in modules.tensors.values()) == len(TASKS) * 2 * 3 * 8
    assert modules.routing(OWN) is None
    with pytest.raises(merging.base.errors.NeedsError, match="no module for 'other'"):
        modules.features(OWN, "other")


def test_surgery_of_one_task_needs_no_other() -> None:
    params = {"rank": 2, "steps": 4, "batch": 4}
    whole, (base, experts) = adapted("surgery", params), golden_adapt.models()
    merged = merging.merge(base, experts, device="cpu").state_dict
    one = adapted("surgery", params, experts={TASKS[1]: experts[TASKS[1]]}, merge="task_arithmetic")
    assert not close(whole.tensors[f"{TASKS[1]}.up"], one.tensors[f"{TASKS[1]}.up"], 1e-3)  # on another merged model
    others = {task: replace(IMAGES[task], images=IMAGES[task].images + (task != TASKS[1])) for task in TASKS}
    again = adapted("surgery", params, test_data=others)
    assert torch.equal(again.tensors[f"{TASKS[1]}.up"], whole.tensors[f"{TASKS[1]}.up"])
    assert not torch.equal(again.tensors[f"{TASKS[0]}.up"], whole.tensors[f"{TASKS[0]}.up"])
    assert all(torch.equal(value, merged[name]) for name, value in whole.merged.state_dict().items())


def test_surgery_has_nothing_to_do_where_the_merged_model_is_the_expert() -> None:
    base, experts = golden_adapt.models()
    one = {TASKS[0]: experts[TASKS[0]]}
    result = merging.merge(
        base, dict.fromkeys(one, base), params={"scaling": 1.0}, adapt=("surgery", {"steps": 3}), device="cpu",
        test_data={TASKS[0]: IMAGES[TASKS[0]]}, architecture=golden_adapt.ARCHITECTURE,
    )  # fmt: skip
    assert (result.tables["learning"]["loss"] == 0).all() and not result.modules.tensors[f"{TASKS[0]}.up"].any()


def test_surgery_falls_on_a_fixed_batch_and_its_gradient_is_autograd_s() -> None:
    modules = adapted("surgery", {"rank": 4, "steps": 40, "lr": 0.01})
    rows = torch.randn(7, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    module = {name: value.clone() + 0.1 for name, value in modules.learned.per_task[TASKS[0]].items()}
    leaves = {name: value.clone().requires_grad_() for name, value in module.items()}
    (surgery.correct_features(rows, leaves) - rows.flip(0)).abs().mean().backward()
    loss, slopes = surgery.gradients(rows, rows.flip(0), module)
    assert all(close(slopes[name], leaf.grad) for name, leaf in leaves.items()) and loss > 0
    base, experts = golden_adapt.models()
    table = merging.merge(
        base, experts, adapt=("surgery", {"steps": 60, "lr": 0.01, "rank": 4}), test_data=IMAGES, device="cpu",
        architecture=golden_adapt.ARCHITECTURE,
    ).tables  # fmt: skip
    losses = table["learning"].pivot(index="step", columns="expert", values="loss")
    assert (losses.iloc[-1] < 0.9 * losses.iloc[0]).all()
    shift = table["feature_shift"]
    assert shift["task"].tolist() == TASKS and (shift["after"] < shift["before"]).all()
    assert shift["before"].tolist() == pytest.approx(losses.iloc[0].tolist(), rel=1e-12)


# --- wemoe -----------------------------------------------------------------------------------------------------------


def test_wemoe_with_constant_weights_is_task_arithmetic_on_the_mlps() -> None:
    base, experts = golden_adapt.models()
    modules = adapted("wemoe", {"router_layers": 0, "steps": 0, "init": 0.4})
    mlps = merging.merge(base, experts, params={"scaling": 0.4}, device="cpu").state_dict
    mixed = {name: mlps[name] if name.endswith(MLP) else v for name, v in modules.merged.state_dict().items()}
    assert close(modules.features(OWN), features(mixed, modules))
    assert torch.equal(modules.routing(OWN), torch.full((len(OWN), 2, 3), 0.4, dtype=torch.float64))
    one = {TASKS[0]: experts[TASKS[0]]}
    alone = adapted("wemoe", {"router_layers": 0, "steps": 0, "init": 1.0}, experts=one, merged={"scaling": 1.0})
    assert close(alone.features(OWN), features(experts[TASKS[0]], alone))


@pytest.mark.parametrize("params", [{}, {"shared": True, "density": 0.3}, {"router_layers": 1}])
def test_wemoe_mixes_every_image_by_itself(params: dict[str, Any]) -> None:
    modules = adapted("wemoe", {"steps": 4, "lr": 0.05, "batch": 4, **params})
    (base, _), routing = golden_adapt.models(), modules.routing(OWN)
    together = modules.features(OWN)
    assert routing.std(dim=0).max() > 1e-4
    for at in (0, 7):
        assert close(modules.features(OWN[at : at + 1]), together[at : at + 1])
        state = dict(modules.merged.state_dict())
        for name in state:
            if name.endswith(MLP):
                weights = routing[at, int(name.split(".")[3])]
                vectors = [modules.stored[task].read(name) for task in TASKS]
                state[name] = base[name] + sum(w * v for w, v in zip(weights, vectors, strict=True))
        assert close(features(state, modules, OWN[at : at + 1]), together[at : at + 1])


def test_wemoe_keeps_the_largest_scalars_of_every_tensor() -> None:
    base, experts = golden_adapt.models()
    modules = adapted("wemoe", {"steps": 0, "density": 0.3})
    for k, task in enumerate(TASKS):
        assert {name.split(".", 4)[4] for name in modules.stored[task].infos} == set(MLP)
        for name in modules.stored[task].infos:
            vector, kept = experts[task][name] - base[name], modules.stored[task].read(name)
            assert int((kept != 0).sum()) == int(0.3 * kept.numel()), (k, name)
            assert kept[kept != 0].abs().min() >= vector[kept == 0].abs().max()
            assert torch.equal(kept[kept != 0], vector[kept != 0])


def test_wemoe_starts_from_adamerging_s_gradient() -> None:
    """One step of Adam from a constant has the sign of the contraction of the merged model's gradient."""
    base, experts = golden_adapt.models()
    modules = adapted("wemoe", {"router_layers": 0, "steps": 1, "lr": 0.01})
    state = {name: value.clone().requires_grad_() for name, value in _at_start(modules, base).items()}
    names = {name.removeprefix("visual."): name for name in state}
    encoder = Encoder(modules.architecture, {short: state[name] for short, name in names.items()})
    for task in IMAGES.values():
        entropies(encoder(task.images), task.head, task.logit_scale).mean().backward()
    for block in range(2):
        for k, task in enumerate(TASKS):
            slope = sum(
                float((value.grad * (experts[task][name] - base[name])).sum())
                for name, value in state.items()
                if name.endswith(MLP) and f"resblocks.{block}." in name
            )
            moved = float(modules.tensors[f"router.{block}.bias"][k]) - 0.3
            assert moved == pytest.approx(-0.01 * slope / (abs(slope) + 1e-8), rel=1e-9)


def _at_start(modules: Modules, base: State) -> State:
    start = merging.merge(base, golden_adapt.models()[1], params={"scaling": 0.3}, device="cpu").state_dict
    return {name: start[name] if name.endswith(MLP) else v for name, v in modules.merged.state_dict().items()}


def test_wemoe_learns_the_same_from_a_batch_and_from_its_images_if_they_are_one() -> None:
    same = {task: replace(IMAGES[task], images=OWN[:1].expand(4, -1, -1, -1)) for task in TASKS}
    by_batch, by_image = (
        adapted("wemoe", {"steps": 3, "lr": 0.01, "routing": routing}, test_data=same) for routing in ("batch", "image")
    )
    assert all(close(by_batch.tensors[name], value, 1e-9) for name, value in by_image.tensors.items())


def test_wemoe_draws_small_weights_for_every_block() -> None:
    tensors = adapted("wemoe", {"steps": 0, "seed": 3}).tensors
    assert not torch.equal(tensors["router.0.fc1.weight"], tensors["router.1.fc1.weight"])
    assert float(tensors["router.0.fc1.weight"].std()) == pytest.approx(0.01, rel=0.2)
    assert not tensors["router.0.fc1.bias"].any() and (tensors["router.0.fc2.bias"] == 0.3).all()
    assert wemoe.WemoeParams(shared=True, density=0.1).values()["routing"] == "batch"


# --- twin ------------------------------------------------------------------------------------------------------------


def one_hot(k: int, n: int = len(OWN)) -> Tensor:
    return torch.eye(len(TASKS))[k].expand(n, -1)


def test_given_weights_go_with_their_images_in_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = adapted("twin", {"density": 1.0, "steps": 0})
    weights = torch.eye(len(TASKS)).repeat(len(OWN), 1)[: len(OWN)]
    together = modules.mixed_features(OWN, weights)
    monkeypatch.setattr(batch_sizes, "CPU_TOKENS", 2 * 5)
    assert 1 < modules.batch_size < len(OWN)
    assert close(modules.mixed_features(OWN, weights), together, 1e-11)


def test_twin_with_everything_is_the_expert() -> None:
    _, experts = golden_adapt.models()
    modules = adapted("twin", {"density": 1.0, "steps": 0})
    for k, task in enumerate(TASKS):
        assert close(modules.mixed_features(OWN, one_hot(k)), features(experts[task], modules), 1e-11)
    assert close(modules.mixed_features(OWN, torch.zeros(len(OWN), 3)), features(modules.merged.state_dict(), modules))


def test_twin_with_nothing_of_a_matrix_keeps_the_vectors() -> None:
    modules = adapted("twin", {"density": 0.0, "steps": 0})
    shapes = {info.shape for info in modules.stored[TASKS[0]].infos.values()}
    assert shapes and all(len(shape) == 1 for shape in shapes)


def test_twin_loses_the_discarded_singular_values() -> None:
    _, experts = golden_adapt.models()
    modules, merged = adapted("twin", {"density": 0.4, "steps": 0}), None
    merged = modules.merged.state_dict()
    for name, value in merged.items():
        if value.ndim < 2:
            continue
        vector = (experts[TASKS[1]][name] - value).flatten(1)
        left, right = (modules.tensors[f"{TASKS[1]}.{name}.{side}"] for side in ("left", "right"))
        rank = int(0.4 * min(vector.shape))
        values = torch.linalg.svdvals(vector)
        assert left.shape[1] == rank
        assert float((vector - left @ right).norm()) == pytest.approx(float(values[rank:].norm()), rel=1e-8)
        assert torch.allclose(left.norm(dim=0), values[:rank], rtol=1e-8)


@pytest.mark.parametrize(("density", "rank"), [(0.29, 29), (0.257, 25)])
def test_twin_rounds_the_rank_down(density: float, rank: int) -> None:
    """0.29 · 100 is 28.999999999999996 in binary fractions."""
    vectors = torch.randn(2, 100, 120, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    slot = Slot(classify_parameters(["visual.proj"])[0], ("a", "b"), torch.zeros_like(vectors[0]), vectors)
    parts = twin.stored_factors(slot, twin.TwinParams(density=density))
    assert [tuple(part[".left"].shape) for part in parts] == [(100, rank)] * 2


def test_twin_s_router_does_not_see_a_constant_and_follows_the_order_of_experts() -> None:
    rows = torch.randn(6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    modules = adapted("twin", {"density": 0.25, "hidden": 12, "steps": 10, "lr": 0.02})
    router = dict(modules.learned.router)
    moved = router | {"mean": router["mean"] + 3.0}
    assert close(twin.logits(moved, rows + 3.0), twin.logits(router, rows), 1e-12)
    _, experts = golden_adapt.models()
    backward = adapted("twin", {"density": 0.25, "steps": 0}, experts=dict(reversed(experts.items())))
    assert backward.tasks == tuple(reversed(TASKS))
    forward = adapted("twin", {"density": 0.25, "steps": 0})
    flipped = backward.mixed_features(OWN, one_hot(2))
    assert close(flipped, forward.mixed_features(OWN, one_hot(0)), 1e-12)
    assert torch.allclose(modules.routing(OWN).sum(dim=1), torch.ones(len(OWN), dtype=torch.float64))

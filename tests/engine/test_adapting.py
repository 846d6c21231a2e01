"""What the engine does around an adapt: going on after a pause, stopping, tables, and what it must not see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import golden_adapt
import pytest
import torch
from contexts import context_of
from golden_adapt import TASKS

import merging
from merging.base.errors import Cancelled, MergingError, NeedsError, Paused
from merging.base.progress import Progress
from merging.engine import adapt as adapting
from merging.engine import routed_network
from merging.engine.adapt import AdaptResult, adapt
from merging.engine.learning.learning_state import LearningState
from merging.methods.learning import Adam
from merging.models.checkpoint import MappingCheckpoint
from merging.models.checkpoint_views import identity_view
from merging.recipes.recipe import Recipe

WEMOE = {"steps": 6, "lr": 0.02, "batch": 4}


def run(key: str, params: dict[str, Any], images: Any = None, edits: Any = (), **options: Any) -> AdaptResult:
    base, experts = golden_adapt.models()
    pretrained = identity_view(MappingCheckpoint(base, "pretrained"))
    pretrained.metadata = {"architecture": '{"quick_gelu": true, "vision_cfg": {"head_width": 8}}'}
    recipe = Recipe.build("weight_averaging", edits=edits, adapt=(key, params))
    mean = {name: torch.stack([expert[name] for expert in experts.values()]).mean(dim=0) for name in base}
    opened = {name: MappingCheckpoint(expert, name) for name, expert in experts.items()}
    data = {"exemplars" if key == "twin" else "test_data": golden_adapt.images() if images is None else images}
    merged = MappingCheckpoint(mean, "merged")
    return adapt(recipe, pretrained, opened, merged, context=context_of(options), **(data | options))


@pytest.mark.parametrize("after", [1, 4])
def test_a_paused_run_goes_on_bit_for_bit(after: int, tmp_path: Path) -> None:
    whole, path, seen = run("wemoe", WEMOE), tmp_path / "kept.safetensors", list[str]()

    def pause() -> bool:
        return len(seen) >= after

    def progress(now: Progress) -> None:
        if now.phase == adapting.LEARNING:
            seen.append(now.detail)

    with pytest.raises(Paused):
        run("wemoe", WEMOE, progress=progress, learning_state=LearningState(path, "run", pause))
    assert path.exists() and seen[-1].startswith(f"step {after} of 6 · entropy ")
    again = run("wemoe", WEMOE, learning_state=LearningState(path, "run"))
    assert all(torch.equal(value, again.modules.tensors[name]) for name, value in whole.modules.tensors.items())
    assert whole.tables["learning"].equals(again.tables["learning"])


def test_what_was_kept_is_removed_where_learning_fails_or_is_cancelled(tmp_path: Path) -> None:
    kept = LearningState(tmp_path / "kept.safetensors", "run")
    images = {task: replace(given, logit_scale=float("nan")) for task, given in golden_adapt.images().items()}
    kept.write()
    with pytest.raises(MergingError, match=r"step 1.*entropy of 'task0' is nan"):
        run("wemoe", WEMOE, images, learning_state=kept)
    assert not (tmp_path / "kept.safetensors").exists()


@pytest.mark.parametrize("key", ["surgery", "twin"])
def test_what_learns_on_features_pauses_between_its_steps_and_begins_anew(key: str) -> None:
    details: list[str] = []

    def progress(now: Progress) -> None:
        details.append(now.detail)

    def pause() -> bool:
        return any("step 2 of" in detail for detail in details)

    with pytest.raises(Paused):
        run(key, {"steps": 4}, progress=progress, learning_state=LearningState(pause=pause))
    assert "step 2 of" in details[-1]
    whole, again = (run(key, {"steps": 4}, learning_state=LearningState()).modules.tensors for _ in range(2))
    assert all(torch.equal(value, again[name]) for name, value in whole.items())


@pytest.mark.parametrize("key", ["surgery", "wemoe", "twin"])
def test_every_phase_is_reported_and_can_be_cancelled(key: str) -> None:
    seen: list[Progress] = []
    run(key, {"steps": 2}, progress=seen.append)
    done = [now.done for now in seen]
    assert done == sorted(done) and seen[-1].done == seen[-1].total
    assert all(now.total >= now.done for now in seen)
    phases = dict.fromkeys(now.phase for now in seen)
    assert adapting.LEARNING in phases
    for phase in phases:
        last = list[str]()

        def cancel(phase: str = phase, last: list[str] = last) -> bool:
            return phase in last

        with pytest.raises(Cancelled):
            run(key, {"steps": 2}, progress=lambda now, last=last: last.append(now.phase), cancel=cancel)


@pytest.mark.parametrize("key,word", [("surgery", "distance of features"), ("twin", "cross-entropy")])
def test_a_loss_that_is_no_number_stops_with_step_and_task(key: str, word: str) -> None:
    images = {task: replace(given, images=given.images * 1e200) for task, given in golden_adapt.images().items()}
    with pytest.raises(MergingError, match=rf"step 1: the {word} of '(task0|the router)' is (nan|inf)"):
        run(key, {"steps": 2}, images)


@pytest.mark.parametrize("key", ["surgery", "twin", "wemoe"])
def test_what_the_last_step_leaves_must_be_numbers(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Adam, "move", lambda adam, name, gradient: adam.values[name].fill_(torch.nan))
    with pytest.raises(MergingError, match=r"learned numbers that are not finite, in (task0|router)\."):
        run(key, {"steps": 1})


@pytest.mark.parametrize("key", ["surgery", "twin"])
def test_a_pause_is_seen_between_two_steps(key: str, tmp_path: Path) -> None:
    seen: list[str] = []
    kept = LearningState(tmp_path / "kept.safetensors", "run", lambda: any("step 2" in detail for detail in seen))
    with pytest.raises(Paused):
        run(key, {"steps": 9}, progress=lambda now: seen.append(now.detail), learning_state=kept)
    assert not any("step 4" in detail for detail in seen)


def test_images_and_heads_that_do_not_fit_are_named() -> None:
    images = golden_adapt.images()
    wrong = images | {TASKS[1]: replace(images[TASKS[1]], images=torch.zeros(2, 3, 4, 4))}
    with pytest.raises(NeedsError, match=r"images of 'task1' must be a tensor \(n, 3, 8, 8\)"):
        run("surgery", {}, wrong)
    wrong = images | {TASKS[2]: replace(images[TASKS[2]], images=torch.full((2, 3, 8, 8), torch.nan))}
    with pytest.raises(NeedsError, match="images of 'task2' hold NaN"):
        run("twin", {}, wrong)
    wrong = images | {TASKS[0]: replace(images[TASKS[0]], head=torch.zeros(5, 9))}
    with pytest.raises(NeedsError, match=r"head of 'task0' must be a tensor \(classes, 8\)"):
        run("wemoe", WEMOE, wrong)
    with pytest.raises(NeedsError, match="must not have labels"):
        run("wemoe", WEMOE, golden_adapt.images(labeled=True))


class Labels:
    """Labels that raise when anything looks at them."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"labels were read: {name}")


def test_twin_sees_no_labels() -> None:
    plain, images = run("twin", {"steps": 2}).modules.tensors, golden_adapt.images()
    for given in images.values():
        object.__setattr__(given, "labels", Labels())
    again = run("twin", {"steps": 2}, images).modules.tensors
    assert all(torch.equal(value, again[name]) for name, value in plain.items())


@pytest.mark.parametrize("routing", ["batch", "image"])
def test_blocks_that_are_computed_again_give_the_same(routing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run("wemoe", WEMOE | {"routing": routing}).modules.tensors
    monkeypatch.setattr(routed_network, "ACTIVATIONS_CPU", 0)
    lean = run("wemoe", WEMOE | {"routing": routing}).modules.tensors
    assert all(golden_adapt.relative_distance(lean[name], value) < 1e-12 for name, value in plain.items())


def test_edits_before_the_merge_change_what_wemoe_stores() -> None:
    base, experts = golden_adapt.models()
    stored = run("wemoe", {"steps": 0}, edits=[("magnitude", {"prune_ratio": 0.5})]).modules.stored
    edited = merging.merge(
        base, {TASKS[0]: experts[TASKS[0]]}, params={"scaling": 1.0}, edits=[("magnitude", {"prune_ratio": 0.5})],
        device="cpu",
    ).state_dict  # fmt: skip
    for name in stored[TASKS[0]].infos:
        assert torch.allclose(stored[TASKS[0]].read(name), edited[name] - base[name], atol=1e-12)


def test_tables_say_how_images_are_routed_and_what_modules_take() -> None:
    adapted = run("wemoe", WEMOE)
    routing, confusion, sizes = (adapted.tables[name] for name in ("routing", "confusion", "modules"))
    weights = adapted.modules.routing(golden_adapt.images()[TASKS[1]].images)
    row = routing.query("task == 'task1' and block == 1 and expert == 'task2'").iloc[0]
    assert row["weight"] == pytest.approx(float(weights[:, 1, 2].mean())) and row["n"] == 10
    assert row["low"] <= row["weight"] <= row["high"]
    first = weights.mean(dim=1).argmax(dim=1)
    shares = confusion.query("task == 'task1'")["share"].tolist()
    assert shares == pytest.approx([float((first == k).double().mean()) for k in range(3)])
    mlp = 2 * (2 * 16 * 64 + 16 + 64)
    assert sizes["numel"].tolist() == [mlp, mlp, mlp, 2 * (16 * 16 + 16 + 3 * 16 + 3), mlp]
    assert (sizes["kept"] <= sizes["numel"]).all() and sizes["kept"].min() > 0
    assert (sizes["bytes"] == 8 * sizes["numel"]).all() and sizes["part"].tolist()[-2:] == [
        "router",
        "pretrained tensors",
    ]
    both = adapted.add_to(merging.merge(*golden_adapt.models(), device="cpu"))
    assert both.modules is adapted.modules and {"tensors", "routing", "modules"} <= set(both.tables)

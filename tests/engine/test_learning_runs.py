"""The engine's side of learning: exact micro-batches, going on after a pause or a crash, progress, failures."""

from __future__ import annotations

import re
import tempfile
import threading
from itertools import pairwise
from types import SimpleNamespace

import common_checks
import pytest
import tiny
import torch
from contexts import context_of

from merging.base.errors import Cancelled, MergingError, NeedsError, Paused
from merging.engine import run as engine
from merging.engine.learning.edited_vectors import MaskFile
from merging.engine.learning.learning_state import LearningState
from merging.images.exemplars import TaskExemplars
from merging.methods.shared.localization import MaskScores
from merging.models.checkpoint import MappingCheckpoint
from merging.recipes.recipe import Recipe

CHAINS = {
    "by tensor": ("adamerging", {"steps": 5, "lr": 0.02, "batch": 4}, ()),
    "by task": ("adamerging", {"steps": 5, "lr": 0.02, "batch": 4, "granularity": "task"}, ()),
    "after an edit of whole tensors": ("adamerging", {"steps": 5, "lr": 0.02, "clamp": "project"}, ("cat",)),
    "masks": ("localize_and_stitch", {"steps": 3, "lr": 1e4, "bias": 2.0, "init_density": 0.1}, ()),
    "masks after an edit": ("localize_and_stitch", {"steps": 2, "lr": 1e4, "bias": 2.0}, ("lwptv",)),
}


@pytest.fixture(scope="module")
def family():
    return common_checks.family()


def run(family, chain, tasks=None, **options):
    base, experts = family
    key, params, edits = CHAINS[chain] if isinstance(chain, str) else chain
    shown = tasks or common_checks.labeled_exemplars(experts)
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    return engine.run_recipe(
        Recipe.build(key, params, edits), tiny.checkpoint(base), opened, exemplars=shown,
        test_data=common_checks.unlabeled(shown), context=context_of(options), **options,
    )  # fmt: skip


def assert_same(one, other):
    assert all(torch.equal(one.state_dict[name], value) for name, value in other.state_dict.items())
    for name, table in other.tables.items():
        assert one.tables[name].equals(table), name


# --- images in parts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chain", ["by tensor", "masks"])
def test_micro_batches_change_nothing(family, chain, monkeypatch):
    together = run(family, chain)
    monkeypatch.setattr("merging.engine.learning.learned_network.ACTIVATIONS_CPU", 1)  # one image at a time
    seen = []
    apart = run(family, chain, progress=seen.append)
    common_checks.assert_close(apart.state_dict, together.state_dict, family[0])
    losses = (torch.tensor(result.tables["learning"]["loss"].to_numpy()) for result in (apart, together))
    assert torch.allclose(*losses, rtol=1e-9)
    images = 5 * 3 * 4 if chain == "by tensor" else 3 * 3 * 6
    assert sum(progress.phase == "Learning" for progress in seen) == images


def test_masks_are_read_in_pieces_as_they_were_written():
    masks = MaskFile({"a": 13, "b": 50}, torch.device("cpu"))
    rows = [{name: torch.rand(n) > 0.5 for name, n in (("a", 13), ("b", 50))} for _ in range(3)]
    for row in rows:
        masks.append(row)
    for name, start, stop in (("a", 0, 13), ("b", 3, 50), ("b", 8, 9), ("b", 17, 44)):
        assert torch.equal(masks.read(name, start, stop), torch.stack([row[name][start:stop] for row in rows]))
    masks.close()


# --- going on --------------------------------------------------------------------------------------------------------


def after(count):
    calls = iter(range(count))
    return lambda: next(calls, None) is None


@pytest.mark.parametrize("chain", CHAINS)
def test_paused_anywhere_it_goes_on_to_the_same_bits(family, chain, tmp_path):
    whole, path = run(family, chain), tmp_path / "learning" / "kept.safetensors"
    pauses = 0
    while True:
        try:
            result = run(family, chain, learning_state=LearningState(path, "a run", pause=after(7)))
            break
        except Paused:
            pauses += 1
            assert path.exists() and pauses < 20
    assert pauses > 1
    assert_same(result, whole)
    assert [name for name in path.parent.iterdir() if name != path] == []


def test_a_crash_loses_what_came_after_the_last_write(family, tmp_path, monkeypatch):
    """Every step is written here; an error in the machine, which nobody catches, leaves the file."""
    monkeypatch.setattr("merging.engine.learning.learning_state.MAX_INTERVAL", 0.0)
    path, steps = tmp_path / "kept.safetensors", []

    def crash(progress):
        steps.append(progress.detail)
        if progress.detail.startswith("step 4 of 5"):
            raise SystemError("the machine stops")

    with pytest.raises(SystemError):
        run(family, "by tensor", learning_state=LearningState(path), progress=crash)
    again = []
    result = run(family, "by tensor", learning_state=LearningState(path), progress=lambda p: again.append(p.detail))
    assert_same(result, run(family, "by tensor"))
    assert any(detail.startswith("step 1 of 5") for detail in steps)
    assert not any(re.match("step [123] of 5$|step [12] of 5 ", detail) for detail in again)


def test_the_file_is_written_soon_and_the_less_often_the_longer_a_write_takes(tmp_path, monkeypatch):
    """So that losses can be watched from the beginning, and large states take a hundredth of the time."""
    now, took, writes = [0.0], [0.001], []

    def save(*_):
        writes.append(now[0])
        now[0] += took[0]

    monkeypatch.setattr("merging.engine.learning.learning_state.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("merging.engine.learning.learning_state.save", save)
    kept = LearningState(tmp_path / "kept.safetensors")
    for until, seconds in ((10.0, 0.1), (60.0, 1.0), (200.0, 1.0)):
        while now[0] < until:
            kept.offer("merge", dict)
            now[0] += 0.5
        took[0] = seconds
    gaps = [later - earlier for earlier, later in pairwise(writes)]
    assert writes[0] == 2.0 and gaps[:3] == pytest.approx([2.0] * 3, abs=0.6)
    assert any(9.5 < gap < 11 for gap in gaps) and gaps[-1] == pytest.approx(31.0, abs=0.6)


@pytest.mark.parametrize("ending", ["cancelled", "failed"])
def test_what_was_kept_is_removed_where_the_run_ends_without_a_result(family, ending, tmp_path):
    path, tasks = tmp_path / "kept.safetensors", common_checks.labeled_exemplars(family[1])
    with pytest.raises(Paused):
        run(family, "by tensor", tasks, learning_state=LearningState(path, pause=after(9)))
    if ending == "failed":
        tasks = {n: TaskExemplars(t.images, t.labels, t.head, float("inf")) for n, t in tasks.items()}
    error = Cancelled if ending == "cancelled" else MergingError
    with pytest.raises(error):
        run(
            family,
            "by tensor",
            tasks,
            learning_state=LearningState(path),
            cancel=after(6) if ending == "cancelled" else None,
        )
    assert not path.exists()


@pytest.mark.parametrize("damage", ["cut", "another run's"])
def test_a_file_that_cannot_be_used_is_told(family, damage, tmp_path):
    path = tmp_path / "kept.safetensors"
    with pytest.raises(Paused):
        run(family, "by tensor", learning_state=LearningState(path, "this run", pause=after(9)))
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    result = run(family, "by tensor", learning_state=LearningState(path, "this run" if damage == "cut" else "another"))
    assert_same(result, run(family, "by tensor"))
    (warning,) = (text for text in result.warnings if "starts over" in text)
    assert "kept.safetensors" in warning


def test_without_a_file_a_pause_still_stops(family):
    event = threading.Event()
    event.set()
    with pytest.raises(Paused):
        run(family, "by tensor", learning_state=LearningState(pause=event))


# --- progress, cancel, files ----------------------------------------------------------------------------------------


def test_progress_tells_steps_and_losses(family):
    seen = []
    result = run(family, "by tensor", progress=seen.append)
    losses = result.tables["learning"].groupby("step")["loss"].mean()
    details = list(dict.fromkeys(progress.detail for progress in seen if progress.phase == "Learning"))
    assert details == ["step 1 of 5", *(f"step {n} of 5 · entropy {losses[n - 1]:.2f}" for n in range(1, 5))]
    learning = [progress for progress in seen if progress.phase == "Learning"]
    scalars = sum(value.numel() for value in family[0].values())
    assert learning[-1].done - learning[0].done == scalars * (5 * 3 * 4 - 4)
    assert seen[-1].done == seen[-1].total


def test_cancel_is_asked_after_every_micro_batch(family, monkeypatch):
    monkeypatch.setattr("merging.engine.learning.learned_network.ACTIVATIONS_CPU", 1)
    seen = []
    stop = threading.Event()

    def second_image(progress):
        seen.append(progress.phase)
        if seen.count("Learning") == 2:
            stop.set()

    with pytest.raises(Cancelled):
        run(family, "by tensor", progress=second_image, cancel=stop)
    assert seen.count("Learning") == 2


@pytest.mark.parametrize("chain", ["after an edit of whole tensors", "masks", "masks after an edit"])
def test_temporary_files_vanish(family, chain, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run(family, chain)
    with pytest.raises(Cancelled):
        run(family, chain, cancel=after(12))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chain", ["after an edit of whole tensors", "masks after an edit"])
def test_no_room_for_temporary_files_is_told(family, chain, monkeypatch):
    monkeypatch.setattr("merging.engine.learning.edited_vectors.free_bytes", lambda folder: 1000)
    with pytest.raises(MergingError, match=r"Learning keeps .* TMPDIR"):
        run(family, chain)


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_stops_with_step_and_task(family):
    tasks = common_checks.labeled_exemplars(family[1])
    name = list(tasks)[1]
    odd = tasks[name]
    tasks[name] = TaskExemplars(odd.images, odd.labels, odd.head, float("inf"))
    with pytest.raises(MergingError, match=rf"step 1: the entropy of '{name}' is nan, .* at most 0.3 in size"):
        run(family, "by tensor", tasks)
    with pytest.raises(MergingError, match=rf"the cross-entropy of '{name}' is nan"):
        run(family, "masks", tasks)


def test_scores_that_are_no_numbers_are_not_taken_for_a_mask(family, monkeypatch):
    def broken(scores, slot, gradient):
        scores.values[slot.name].fill_(float("nan"))
        return torch.zeros_like(slot.pretrained)

    monkeypatch.setattr(MaskScores, "descend", broken)
    name = next(iter(family[1]))
    with pytest.raises(MergingError, match=rf"scores of '{name}' are NaN in visual\."):
        run(family, "masks")


@pytest.mark.parametrize("chain", ["by tensor", "masks"])
def test_images_and_heads_that_do_not_fit_are_told(family, chain):
    tasks = common_checks.labeled_exemplars(family[1])
    name, task = next(iter(tasks.items()))
    large = TaskExemplars(torch.zeros(6, 3, 32, 32), task.labels, task.head)
    with pytest.raises(NeedsError, match=rf"images of '{name}' .* \(n, 3, 16, 16\); got \(6, 3, 32, 32\)"):
        run(family, chain, {**tasks, name: large})
    holes = TaskExemplars(task.images.clone().fill_(float("nan")), task.labels, task.head)
    with pytest.raises(NeedsError, match=f"images of '{name}' hold NaN"):
        run(family, chain, {**tasks, name: holes})
    wide = TaskExemplars(task.images, task.labels, torch.ones(5, 9))
    with pytest.raises(NeedsError, match=rf"head of '{name}' .* \(classes, 8\); got \(5, 9\)"):
        run(family, chain, {**tasks, name: wide})


@pytest.mark.parametrize("key", ["adamerging", "localize_and_stitch"])
def test_every_task_that_lacks_something_is_named(family, key):
    tasks = common_checks.labeled_exemplars(family[1])
    first, second, third = tasks
    tasks[first] = TaskExemplars(tasks[first].images, tasks[first].labels)
    tasks[second] = TaskExemplars(tasks[second].images[:0], tasks[second].labels[:0], tasks[second].head)
    with pytest.raises(NeedsError, match=f"images for {second}; a head for {first}"):
        run(family, (key, {}, ()), tasks)
    if key == "adamerging":
        tasks[third] = TaskExemplars(tasks[third].images, None, tasks[third].head[:1])
        with pytest.raises(NeedsError, match=f"more than one class for {third}"):
            run(family, (key, {}, ()), tasks)


def test_half_precision_is_computed_in_single(family):
    base, experts = common_checks.family(torch.float16)
    shown = common_checks.labeled_exemplars(experts)
    result = run((base, experts), "by tensor", shown)
    wide = {name: {n: v.float() for n, v in state.items()} for name, state in experts.items()}
    single = run(({n: v.float() for n, v in base.items()}, wide), "by tensor", shown)
    assert all(torch.equal(result.state_dict[name], value.half()) for name, value in single.state_dict.items())

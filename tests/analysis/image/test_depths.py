"""Answers by depth over whole data sets: against single images, shares by hand, and finding images by them."""

from __future__ import annotations

import numpy as np
import pytest
import tiny

from merging.base.errors import TaskError
from merging.images.benchmarks.paired_scores import find_share_interval
from merging.models.model_references import PRETRAINED
from merging.study import measure
from merging.study.measurements import depths
from merging.study.measurements.find_images import find_by_answers, find_by_depth
from merging.study.one_image import restore
from merging.study.one_image.logit_lens import answers_by_depth
from merging.study.one_image.named_towers import reference_key
from merging.study.one_image.studied_image import find_image
from merging.study.runs.reference_models import find_references
from merging.study.runs.run_answers import read_run_answers
from merging.tasks.context import Context

D = tiny.LAYERS + 1


@pytest.fixture(scope="module")
def measured(store, run, tiny_benchmark):
    return measure.measure("depths", store, tiny_benchmark, run.id, context=Context(device="cpu"))


@pytest.fixture(scope="module")
def by_task(measured, tiny_benchmark):
    return depths.read_depths(measured, tiny_benchmark)


@pytest.fixture(scope="module")
def answered(store, run, tiny_benchmark):
    """Stored answers of the run and of the pretrained model."""
    base = find_references(store, tiny_benchmark, context=Context("cpu"))[PRETRAINED]
    return {one.id: read_run_answers(one, tiny_benchmark) for one in (run, base)}


def test_the_last_depth_is_what_was_scored(measured, by_task, run, answered):
    scores = run.scores[run.scores["split"] == "reporting"].set_index("task")["accuracy"]
    table = measured.table("accuracy").query(f"model == 'run' and depth == {D - 1}").set_index("over")
    np.testing.assert_allclose(table.loc[scores.index, "accuracy"], scores, atol=1e-6)
    assert (table["low"] <= table["accuracy"]).all() and (table["accuracy"] <= table["high"]).all()
    for task, one in by_task.items():
        np.testing.assert_array_equal(one.answers[:, -1], answered[run.id][task].predicted[0])


def test_every_image_turns_once(measured, by_task):
    table = measured.table("turns")
    np.testing.assert_allclose(table.groupby("over")["share"].sum(), 1, atol=1e-5)
    for task, one in by_task.items():
        shares = np.zeros(D)
        for row in one.answers:
            depth = D - 1
            while depth and row[depth - 1] == row[-1]:
                depth -= 1
            shares[depth] += 1 / len(one.answers)
        np.testing.assert_allclose(table[table["over"] == task].sort_values("depth")["share"], shares, atol=1e-6)
    parts = measured.table("parts").groupby("over")["share"].sum()
    for task, one in by_task.items():
        assert parts[task] == pytest.approx((one.answers[:, -1] != one.reference[:, -1]).mean(), abs=1e-6)


def test_what_mends_is_what_restoring_one_image_says(measured, by_task, made, run, tiny_benchmark):
    table = measured.table("mended").set_index(["over", "donor", "tokens", "depth"]).sort_index()
    seen = 0
    for task in ("digits", "letters"):
        one, reference, mended = by_task[task], reference_key(run, task), []
        broken = (one.answers[:, -1] != one.labels) & (one.reference[:, -1] == one.labels)
        assert ((one.restored_right[:, 0, 0] >= 0) == broken).all()
        for number in np.flatnonzero(broken):
            studied = find_image(tiny_benchmark, f"{task}:reporting:{number}")
            rows = made.restore(studied, run.id, reference).pivot(index="depth", columns="tokens", values="right")
            np.testing.assert_array_equal(
                rows[list(restore.TOKEN_KINDS)].to_numpy(bool), one.restored_right[number] == 1
            )
            np.testing.assert_array_equal(
                answers_by_depth(made.trace(studied, reference), studied), one.reference[number]
            )
            mended.append(rows["class"].to_numpy(bool))
        for depth in range(D) if mended else ():
            row = table.loc[(task, "reference", "class", depth)]
            assert row["share"] == pytest.approx(np.mean(mended, axis=0)[depth], abs=1e-6) and row["n"] == len(mended)
        seen += len(mended)
    assert seen > 2
    whole = table.loc[("in domain", "reference", "all", 1), "n"]
    assert whole == sum(table.loc[(task, "reference", "all", 1), "n"] for task in tiny.EXPERTS)


def test_the_stored_scale_is_the_one_that_is_measured_now(measured, made, run, image):
    reference = reference_key(run, "digits")
    stored = made.scale(image, run.id, reference)
    other = made.scale(image, run.id, PRETRAINED)  # not the reference that is stored
    assert not np.allclose(stored.drift["mean"], other.drift["mean"], atol=1e-6)
    for name in ("accuracy", "reference", "drift"):
        assert set(getattr(stored, name)["depth"]) == set(range(D))
    measured_now = made.towers(run.id), made.towers(reference)
    assert all(tower.encoder.sections == D + 1 for tower in measured_now)
    drifts = [made.drift(find_image(made.towers.benchmark, f"digits:reporting:{n}"), run.id, reference, scaled=False)
              for n in range(tiny.REPORTING)]  # fmt: skip
    last = [table.query(f"depth == {D - 1} and token == 0")["drift"].iloc[0] for table in drifts]
    row = stored.drift.query(f"depth == {D - 1} and token == 'class'").iloc[0]
    assert row["mean"] == pytest.approx(np.mean(last), rel=1e-4) and row["n"] == tiny.REPORTING


def test_an_interval_of_a_share_covers_as_often_as_it_says():
    held = {"a": np.arange(40) < 30, "b": np.arange(10) < 2, "none": np.zeros(0, bool)}
    share, low, high, n = find_share_interval(held)
    assert (share, n) == (0.64, 50) and 0.45 < low < 0.56 and 0.7 < high < 0.8
    assert find_share_interval({"a": np.ones(9, bool)}) == (1, 1, 1, 9)
    assert np.isnan(find_share_interval({})[0])


# Finding


def test_images_by_depth(by_task, tiny_benchmark):
    for depth in range(D):
        table = find_by_depth("turns", by_task, tiny_benchmark, depth=depth)
        for row in table.to_dict("records"):
            own = by_task[row["task"]].answers[row["number"]]
            assert (own[depth:] == own[-1]).all() and (depth == 0 or own[depth - 1] != own[-1])
            assert row["answer"] == f"{row['task']} {own[-1]}"
    assert sum(len(find_by_depth("turns", by_task, tiny_benchmark, depth=d)) for d in range(D)) == 180
    drift = find_by_depth("drift", by_task, tiny_benchmark, depth=2)
    assert drift["value"].is_monotonic_decreasing and len(drift) == 180
    assert drift["value"][0] == max(one.drift[:, 2].max() for one in by_task.values())
    mended = find_by_depth("mended", by_task, tiny_benchmark, depth=1, tokens="all")
    assert set(mended["image"]) == {
        f"{task}:reporting:{n}"
        for task, one in by_task.items()
        for n in np.flatnonzero(one.restored_right[:, 1, 2] == 1)
    }
    broken = find_by_depth("broken", by_task, tiny_benchmark)
    for row in broken.to_dict("records"):
        own = by_task[row["task"]].restored_right[row["number"], :, 0]
        first = int(row["value"])
        assert (own[first:] == 1).all() and (first == 0 or own[first - 1] == 0)
    assert len(broken) == sum((one.restored_right[:, 0, 0] >= 0).sum() for one in by_task.values())
    for row in find_by_depth("parts", by_task, tiny_benchmark, depth=2).to_dict("records"):
        one, number = by_task[row["task"]], row["number"]
        assert (one.answers[number] != one.reference[number]).tolist()[1:] == [False, True]


def test_images_by_answers(answered, tiny_benchmark, run):
    only = find_by_answers("only B right", answered, tiny_benchmark)
    base = next(key for key in answered if key != run.id)
    expected = {
        f"{task}:reporting:{n}"
        for task, own in answered[run.id].items()
        for n in range(len(own.labels))
        if own.predicted[0, n] != own.labels[n] and answered[base][task].predicted[0, n] == own.labels[n]
    }
    assert set(only["image"]) == expected and expected
    nowhere = find_by_answers("right nowhere", answered, tiny_benchmark)
    assert not set(nowhere["image"]) & expected and (nowhere["class"] != nowhere["answer"]).all()
    lost = find_by_answers("margin lost", answered, tiny_benchmark)
    assert lost["value"].is_monotonic_decreasing and lost["value"].iloc[0] > 0 and len(lost) == 180


def test_questions_that_nobody_can_answer(by_task, answered, tiny_benchmark, run):
    for call in (
        lambda: find_by_depth("turn", by_task, tiny_benchmark),
        lambda: find_by_depth("turns", by_task, tiny_benchmark, depth=D),
        lambda: find_by_depth("mended", by_task, tiny_benchmark, tokens="some"),
        lambda: find_by_answers("margin lost", {run.id: answered[run.id]}, tiny_benchmark),
    ):
        with pytest.raises(TaskError):
            call()

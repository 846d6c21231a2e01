"""The Sweeps page: the best point under a bound, a point that two sweeps share, doubts about the models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import odd_experts
import pytest
from page_harness import words
from swept_library import means_of, picker, run_library_sweep

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_session as sweep_compute
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep import Axis, Sweep


@pytest.mark.full
def test_the_best_point_under_a_bound(open_app: Any, library: Path, tmp_path: Path) -> None:
    found = run_library_sweep(library, tmp_path / "store")
    means = means_of(found, library, tmp_path / "store")
    least = int(100 * sorted(means["out_of_domain"])[-2])
    meeting = means[means["out_of_domain"] >= least / 100]
    at = open_app(
        "sweeps", library, sweep=found.id, constraint="out of domain", minimum=str(least), criterion="in domain"
    )
    assert not at.exception and not at.error and not at.warning
    best = meeting.loc[meeting["in_domain"].idxmax(), "point"]
    assert picker(at, "chosen_point").value == best
    said = words(at).replace("\\", "")
    assert "The best point that meets the bound." in said
    assert "of 10,000 resamples of the images (seed 0) it is met" in said and f"at least {least}% is met" in said
    ranked = meeting.sort_values("in_domain", ascending=False)
    lead = 100 * (ranked["in_domain"].iloc[0] - ranked["in_domain"].iloc[1])
    assert f" is best in domain, {100 * ranked['in_domain'].iloc[0]:.1f}%; " in said
    assert f"of {len(meeting) - 1} other points that meet the bound cannot be distinguished from it" in said
    assert f"It is {lead:.1f} points" in said
    spec = at.get("plotly_chart")[0].proto.spec
    assert "Cannot be distinguished from the best" in spec and "points to the best (" in spec
    assert f"Subject to out of domain at least {least}%" in spec and '"type":"rect"' in spec
    other = next(option for option in means["point"] if option not in set(meeting["point"]))
    picker(at, "chosen_point").set_value(other).run()
    assert f"at least {least}% is not met" in words(at)
    at.button(key="show_best").click().run()
    assert picker(at, "chosen_point").value == best


@pytest.mark.full
def test_no_point_meets_the_bound(open_app: Any, library: Path, tmp_path: Path) -> None:
    found = run_library_sweep(library, tmp_path / "store")
    means = means_of(found, library, tmp_path / "store")
    at = open_app("sweeps", library, sweep=found.id)
    picker(at, "chosen_point").set_value(str(means["point"].iloc[0])).run()
    at.selectbox(key="constraint").set_value("in domain").run()
    at.number_input(key="minimum").set_value(100).run()
    assert not at.exception
    assert "No point has at least 100% in domain. The nearest is shown." in at.warning[0].value
    assert picker(at, "chosen_point").value == means.loc[means["in_domain"].idxmax(), "point"]  # whatever was chosen
    assert " is best " not in words(at)


@pytest.mark.full
def test_a_point_that_two_sweeps_share_has_a_picker_in_each(open_app: Any, library: Path, tmp_path: Path) -> None:
    one, other = (
        run_library_sweep(library, tmp_path / "store", presets=("ties",), axes=(axis,))
        for axis in (Axis("ties.density", (0.1, 0.2)), Axis("ties.scaling", (0.2, 0.3)))
    )
    shared = {point.name for point in sweep_compute.plan_sweep(one, Benchmark.load(library))}
    (point,) = shared & {point.name for point in sweep_compute.plan_sweep(other, Benchmark.load(library))}
    at = open_app("sweeps", library, sweep=one.id, point=point)
    before = picker(at, "chosen_point")
    assert before.value == point and "0.2" in before.options[1]
    picker(at, "sweep_picker").set_value(other.id).run()
    picker(at, "chosen_point").set_value(point).run()
    assert picker(at, "chosen_point").value == point
    assert one.id in before.key and other.id in picker(at, "chosen_point").key  # browsers keep a key's old label


def test_what_may_be_wrong_with_the_models_is_said(open_app: Any, library: Path, tmp_path: Path) -> None:
    benchmark, odd = Benchmark.load(library), odd_experts.write(tmp_path / "odd")
    stranger = {"circles": str(odd.experts["stranger"]), "digits": benchmark.experts["digits"]}
    recipe = Recipe.build("task_arithmetic", {}, [], benchmark.pretrained, stranger)
    found = Sweep(recipes=(recipe,), axes=(Axis("task_arithmetic.scaling", (0.1, 0.3)),), images=4)
    sweep_storage.store_sweep(found, Store(tmp_path / "store", libraries=()))
    at = open_app("sweeps", library, sweep=found.id)
    assert not at.exception
    (warned,) = [box.value for box in at.warning]
    assert warned.startswith("**Check the models of this sweep:**") and "circles does not look fine\\-tuned" in warned

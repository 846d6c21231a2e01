"""What foretells losses on Partners, and expected losses on Merge: bundled, and for experts of one's own."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from page_harness import chart_keys, find_buttons, press, words

from app.reading import page_data
from app.views.merge.expected_loss import describe_forecast
from app.views.partners.foretold_view import describe_chance, describe_noise, describe_verdicts
from app.widgets.panels import foretold_panel
from app.widgets.panels.foretold_panel import Foretold
from merging.base import settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.study import measure
from merging.study.partners.forecast import Forecast, forecast_losses
from merging.study.partners.foretell import REGRESSION, SIZE_ALONE, find_noise_share, judge_predictors, list_losses
from merging.study.partners.predictors import list_predictors
from merging.study.partners.stored_subsets import read_subsets
from merging.study.partners.subsets import MeasuredSubsets, list_few, plan_subsets
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep import SUBSETS
from merging.study.sweeps.sweep_session import run_sweep
from merging.tasks.context import Context

VIEW = {"partners_view": "what foretells it"}
ON = {"expected_loss": "true"}
MEASURE = "Measure pairs and triples"


def judge_bundled(key: str) -> tuple[Any, Any, Any]:
    """The predictors, the losses and the judgment of a bundled chain, from the files of the library."""
    benchmark, store = Benchmark.load(settings.BUNDLED_FOLDER), Store(libraries=(settings.LIBRARY_FOLDER,))
    recipe = find_preset(key).recipe(benchmark.pretrained, benchmark.experts)
    run = next(run for run in store.list_runs() if run.recipe and run.recipe.experts == recipe.experts)
    stored = measure.find_measurement_result("predictors", store, benchmark, run.id)
    assert stored is not None
    subsets = None if key == "task_arithmetic" else list_few(len(recipe.experts))
    measured = read_subsets(plan_subsets(recipe, subsets=subsets), store, benchmark)
    assert measured.complete
    pairs, losses = stored.table("pairs"), list_losses(measured)
    return pairs, losses, judge_predictors(pairs, losses, list_predictors(pairs))


@pytest.mark.full
def test_the_bundled_chains_are_judged_at_once(open_app: Any) -> None:
    at = open_app("partners", settings.BUNDLED_FOLDER, **VIEW)
    assert not at.exception and not at.error and chart_keys(at) == ["foretold_losses"]
    assert not find_buttons(at, MEASURE, "Measure") and "Not measured yet" not in words(at)
    for key, name in (("ties", "TIES"), ("task_arithmetic", "Task Arithmetic"), ("tsv_m", "TSV")):
        for row in judge_bundled(key)[2].dropna(subset="p").to_dict("records"):
            better, worse = re.search(
                rf"With \*\*{row['name']}\*\*, the order of losses is foretold (better .*?)?(\*\*no\*\* better.*)?\.\n",
                words(at),
            ).groups("")  # type: ignore[union-attr]
            is_useful, number = row["p"] <= 0.05 and row["rho"] > 0, f"{row['rho']:.2f}".replace("-", "−")
            assert bool(re.search(rf"{name}[^(]*(\([^(]*\))? \(ρ = {number}, ", better)) == is_useful, row
            assert bool(re.search(rf"{name}(,| and| \\\(|\\-|$)", worse)) != is_useful, row


@pytest.mark.full
@pytest.mark.parametrize("chain", ["ties", "tsv_m"])
def test_merge_states_what_is_true_of_a_bundled_team(open_app: Any, chain: str) -> None:
    pairs, losses, judged = judge_bundled(chain)
    team = frozenset({"signs", "land", "textures"})
    forecast = forecast_losses(pairs, losses, judged, team)
    at = open_app("merge", settings.BUNDLED_FOLDER, chain=chain, experts=",".join(sorted(team)), **ON)
    assert not at.exception and not at.error
    if forecast.reason:
        numbers = [f"{100 * judged[name][0]:.2f}" for name in ("error", "constant_error")]
        expected = (
            "the error is {} points, and {} points if".format(*numbers)
            if judged["beats_control"][0]
            else "do not foretell"
        )
        assert "No expected loss." in words(at) and expected in words(at).replace("\\", "")
        return
    assert "Expected loss: " in words(at) and f"quantiles of {forecast.residuals} losses" in words(at)
    for row in forecast.losses.to_dict("records"):
        title = page_data.data_set_titles()[row["task"]]
        stated = re.search(rf"\*\*{title}\*\* ([^,.]*) points", words(at)).group(1)
        ends = [abs(round(100 * row[name])) for name in ("low", "high")]
        assert sorted(map(int, re.findall(r"\d+", stated))) == sorted(ends)


@pytest.mark.full
def test_merge_says_why_it_states_nothing(open_app: Any) -> None:
    at = open_app("merge", settings.BUNDLED_FOLDER, chain="ties", **ON)
    assert "teams of two and three experts, and this one has 8" in words(at)
    at = open_app("merge", settings.BUNDLED_FOLDER, chain="ties:density=0.3", experts="signs,land", **ON)
    assert "not measured with this chain and these values" in words(at) and find_buttons(at, MEASURE)
    assert "never used for others" not in words(at), "these are the bundled experts"
    at = open_app("merge", settings.BUNDLED_FOLDER, chain="ties", experts="signs", **ON)
    assert "this is a single one" in words(at)


def test_nothing_is_read_until_it_is_switched_on(open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(foretold_panel, "read_foretold", lambda *inputs: asked.append(inputs))
    at = open_app("merge", library, chain="ties")
    assert not at.exception and asked == [] and at.toggle(key="expected_loss").value is False


def test_own_experts_are_offered_a_fit_of_their_own(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="ties", **ON)
    assert not at.exception and not at.error
    assert "never used for others" in words(at) and "not measured with this chain" in words(at)
    assert re.search(r"\*\*\d+ subsets\*\*: .*about \*\*", words(at)) and find_buttons(at, "Measure")
    press(at, MEASURE)
    (sweep,) = sweep_storage.list_sweeps(page_data.store(), (SUBSETS,)).values()
    experts = len(Benchmark.load(library).experts)
    assert list(map(int, sweep.axes[0].values)) == list_few(experts) and sweep.images == 64


@pytest.mark.full
def test_partners_offers_what_is_missing_and_draws_what_is_there(open_app: Any, library: Path) -> None:
    at = open_app("partners", library, **VIEW)
    assert not at.exception and not at.error and chart_keys(at) == []
    assert find_buttons(at, MEASURE) and find_buttons(at, "Measure")
    benchmark, store = Benchmark.load(library), page_data.store()
    recipe = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    run_sweep(plan_subsets(recipe, subsets=list_few(len(recipe.experts))), store, benchmark)
    run = next(run for run in store.list_runs() if run.recipe and run.recipe.experts == recipe.experts)
    measure.measure("predictors", store, benchmark, run.id, context=Context(device="cpu"))
    at.run()
    assert not at.exception and not find_buttons(at, MEASURE, "Measure")
    assert "Not measured yet: " in words(at) and "Choose a chain above" in words(at)


def test_ranges_are_losses_gains_or_both() -> None:
    rows = [("a", 0.2, 0.31, np.nan), ("b", -0.05, 0.1, np.nan), ("c", -0.2, -0.02, 0.04),
            ("d", -0.001, 0.001, np.nan), ("e", -0.04, 0.0, np.nan), ("f", 0.03, 0.03, np.nan)]  # fmt: skip
    losses = Forecast(pd.DataFrame(rows, columns=["task", "low", "high", "measured"]))
    sentence = describe_forecast(losses)
    assert "**a** 20 to 31 points, **b** from a gain of 5 to a loss of 10 points, **f** 3 points, " in sentence
    assert "**d** 0 points, **e** gains 0 to 4 points, **c** gains 2 to 20 points." in sentence
    assert "c lost 4.0 points" in sentence


def test_verdicts_name_errors_in_points_and_what_chance_gives() -> None:
    rows = [(REGRESSION, 0.4, 0.005, 0.0248, 0.023), ("cosine alone", 0.3, 0.01, 0.01, 0.023),
            ("pretrained accuracy alone", 0.1, 0.5, 0.03, 0.023), (SIZE_ALONE, 0.1, np.nan, 0.02, 0.023)]  # fmt: skip
    table = pd.DataFrame(rows, columns=["name", "rho", "p", "error", "constant_error"])
    table = table.assign(label=table["name"].str.capitalize(), task="TIES", beats_control=table["p"] <= 0.05)
    sentences = describe_verdicts(table)
    assert "p = 0.005, error 2.48 points, not below the 2.30 of a constant)" in sentences[0]
    assert "error 1.00 points, below the 2.30 of a constant)" in sentences[1] and "no control" in sentences[-1]
    assert describe_chance(table).startswith("2 of 3 sets (of all chains) beat their control; about 0.15 would")
    alone = table[table["name"] == SIZE_ALONE]
    assert describe_verdicts(alone) == [] and describe_chance(alone) == ""


def test_noise_is_named_where_it_is_most_of_the_spread() -> None:
    rng = np.random.default_rng(0)

    def draw(images: int, steps: float) -> Foretold:
        right = {subset: {task: (rng.random(images) < 0.9 - steps * subset).astype(float) for task in "abc"}
                 for subset in range(8)}  # fmt: skip
        measured = MeasuredSubsets(tuple("abc"), right, 8)
        return SimpleNamespace(stored_subsets=SimpleNamespace(answers=measured))  # type: ignore[return-value]

    noisy, clear = draw(64, 0.0), draw(64, 0.1)
    share = find_noise_share(noisy.stored_subsets.answers)
    assert share > 0.5 > find_noise_share(clear.stored_subsets.answers)
    sentence = describe_noise({"TIES": noisy, "TSV": clear})
    assert sentence.startswith("On 64 images, sampling alone explains most of the variance of losses of TIES (about ")
    assert f"(about {100 * share:.0f}\u00a0%)," in sentence and "TSV" not in sentence
    assert describe_noise({"TSV": clear}) == ""

"""Gentler fine-tuning and a second seed: how experts are tuned, how claims are judged, and what the README says."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from merging.base import settings
from merging.images.benchmarks.paired_scores import IN_DOMAIN, OUT_OF_DOMAIN
from merging.recipes.papers.claims import CLAIMS
from merging.study import training_tables
from merging.study.paper_facts.comparison import Verdict
from sample_data.build import gentle_study, gentle_tables
from sample_data.build.gentle_tuning import SETTINGS, TEAM, Adapted
from sample_data.build.network import Tower

PARTS = IN_DOMAIN, OUT_OF_DOMAIN


@pytest.fixture(scope="module")
def study():
    return pd.read_csv(settings.BUNDLED_FOLDER / training_tables.SETTINGS)


@pytest.fixture(scope="module")
def claims():
    return pd.read_csv(settings.BUNDLED_FOLDER / training_tables.SETTING_CLAIMS)


@pytest.fixture(scope="module")
def readme():
    return " ".join((settings.BUNDLED_FOLDER / "README.md").read_text("utf-8").split())


def test_readme_has_the_table_and_counts_its_claims(study, readme):
    assert " ".join(gentle_tables.format_settings(study).split()) in readme
    others = study[~study["setting"].isin((training_tables.STORED, training_tables.CONTROL))].sum(numeric_only=True)
    assert (
        f"Of the {others['turned']:.0f} turned claims of the five other settings, {others['turned_significant']:.0f} "
        "have a difference that has changed significantly from that of the stored experts, and so have "
        f"{others['lost_significant']:.0f} of the {others['lost']:.0f} lost ones."
    ) in readme


def test_readme_compares_the_seeds(readme):
    scores = pd.read_csv(settings.BUNDLED_FOLDER / training_tables.SEEDS)
    values = 100 * scores.pivot(index=["part", "label"], columns="seed", values="value")
    inside, outside = (values.loc[part].drop(list(training_tables.REFERENCES), errors="ignore") for part in PARTS)
    falls = inside[0] - inside[1]
    deviations = [100 * training_tables.summarize_seeds(scores, part)["deviation"].iloc[0] for part in PARTS]
    halves = 100 * training_tables.summarize_seeds(scores, PARTS[0]).eval("high - value")
    errors = 100 * scores[scores["part"].isin(PARTS)].set_index("label").loc[inside.index].eval(
        "(high - low) / 2 / 1.96"
    )
    (in_swapped, pairs), (out_swapped, _) = (training_tables.count_swapped_pairs(scores, part) for part in PARTS)
    pretrained, own = (values.loc[PARTS[0], label] for label in training_tables.REFERENCES)
    n = [scores.loc[scores["part"] == part, "n"].unique().item() for part in PARTS]
    better = values.loc[PARTS[1], "Pretrained"].diff()[1]
    assert (len(inside), len(outside), out_swapped) == (10, 10, 0)  # "ten", "none"
    assert halves.min() > 15 and errors.mean() == pytest.approx(0.7, abs=0.05)
    for sentence in (
        f"n = {n[0]:,} in domain and {n[1]:,} out of it",
        f"has {pretrained[1]:.1f} % in domain ({pretrained[0]:.1f} % with seed 0), the experts {own[1]:.1f} % on their "
        f"own tasks ({own[0]:.1f} %)",
        f"All ten merges are {falls.min():.1f} to {falls.max():.1f} points lower in domain.",
        f"between seeds is {deviations[0]:.1f} points in domain and {deviations[1]:.1f} points out of it",
        "standard error is about 0.7 points",
        "uncertain by more than 15 points",
        f"seed 1 is better out of domain, by {better:.1f} points.",
        f"in domain {in_swapped} of {pairs} pairs of merges are the other way round, out of domain none.",
    ):  # fmt: skip
        assert sentence in readme


def test_turned_claims_are_those_that_only_the_setting_has_in_the_papers_direction(study, claims):
    claims = claims.assign(
        same=claims["verdict"] == Verdict.SAME, significant=(claims["change_low"] > 0) | (claims["change_high"] < 0)
    )
    same, significant, differences = (
        claims.pivot(index="claim", columns="setting", values=name) for name in ("same", "significant", "difference")
    )
    changes = claims.pivot(index="claim", columns="setting", values="change")
    assert (changes - differences.sub(differences[training_tables.STORED], axis=0)).abs().to_numpy().max() < 0.02
    for row in study.itertuples():
        turned, lost = (
            same[one] & ~same[other]
            for one, other in ((row.setting, training_tables.STORED), (training_tables.STORED, row.setting))
        )
        assert (row.turned, row.lost) == (turned.sum(), lost.sum())
        assert row.turned_significant == (turned & significant[row.setting]).sum()
        assert row.lost_significant == (lost & significant[row.setting]).sum()


def test_low_rank_updates_start_at_the_pretrained_weights_and_stay_low_rank():
    torch.manual_seed(0)
    tower = Tower()
    weights = dict(tower.named_parameters())
    updates = Adapted(tower, 4)
    assert all(torch.equal(value, weights[name]) for name, value in updates.add_to(weights).items())
    for up in updates.up:
        torch.nn.init.normal_(up)
    changed = [name for name, value in updates.add_to(weights).items() if not torch.equal(value, weights[name])]
    assert len(changed) == 4 * 6  # four linear weights in each of six blocks
    assert {int(torch.linalg.matrix_rank(updates.add_to(weights)[name] - weights[name])) for name in changed} == {4}


def test_differences_are_paired():
    generator = np.random.default_rng(1)
    right = {task: generator.random(240) < 0.8 for task in TEAM + gentle_study.OUTSIDE}
    better = {task: values | (np.arange(240) < 12) for task, values in right.items()}
    at = gentle_study.Accuracies({"first": better, "second": right})
    difference = at.average("first") - at.average("second")
    assert difference[0] == pytest.approx(np.mean([100 * (better[key].mean() - right[key].mean()) for key in TEAM]))
    assert difference[1:].min() >= 0  # a model that is right wherever the other is never loses a draw
    assert difference[1:].mean() == pytest.approx(difference[0], abs=0.02)


def test_claims_about_learning_are_left_out(claims):
    at = SimpleNamespace(average=lambda *_: np.zeros(2))
    learning = next(claim for claim in CLAIMS if claim.key == "lwptv_adamerging_layers")
    assert gentle_study.compare_claim(learning, at) is None
    assert not claims["claim"].str.contains("adamerging").any()


def test_each_setting_has_the_same_claims(study, claims):
    by_setting = claims.groupby("setting", sort=False)["claim"].agg(list)
    assert list(by_setting.index) == list(study["setting"]) == [each.key for each in SETTINGS]
    assert {tuple(each) for each in by_setting} == {tuple(by_setting[training_tables.STORED])}
    assert study["claims"].to_list() == [len(by_setting[training_tables.STORED])] * len(SETTINGS)


def test_a_merge_that_is_not_measured_is_refused():
    right = {task: np.ones(240, bool) for task in TEAM + gentle_study.OUTSIDE}
    with pytest.raises(ValueError, match=r"seed1: claim .* needs .*, which is not measured"):
        gentle_study.compare_claims(SETTINGS[-1], gentle_study.Accuracies({"pretrained": right}))


def test_changes_from_the_stored_experts_are_paired():
    draws = np.random.default_rng(0).normal(3, 1, 1001)
    stored = {claim.key: np.stack([draws, np.zeros(1001), draws]) for claim in CLAIMS[:2]}
    compared = {key: np.add(values, [[0.5], [0], [0.5]]) for key, values in stored.items()}  # by as much on every draw
    for row in gentle_study.judge_claims(SETTINGS[1], compared, stored):
        assert row["change"] == row["change_low"] == row["change_high"] == 0.5
        assert row["low"] < row["difference"] < row["high"]


@pytest.mark.full
def test_another_seed_has_no_check(tmp_path):
    command = [sys.executable, settings.BUNDLED_FOLDER / "make.py", "--seed", "1", "--stage", "check"]
    folders = ["--out", tmp_path, "--work", tmp_path / "work"]
    done = subprocess.run([*command, *folders], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "The floors of --stage check are for seed 0" in done.stderr
    assert not (tmp_path / "work").exists()

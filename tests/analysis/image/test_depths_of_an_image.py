"""Answers, attention and drift by depth: against stored answers, plain arithmetic, and what is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from torch.nn.functional import normalize

from merging.models.model_references import PRETRAINED
from merging.study.one_image import attention, logit_lens, patch_drift, trace
from merging.study.one_image.studied_image import find_image
from merging.study.runs.run_answers import read_run_answers

BLOCKS, PATCHES = tiny.LAYERS, tiny.TOKENS - 1
NAME = "digits:reporting:3"


# Answers by depth


@pytest.mark.parametrize("task", ["digits", "letters"])
def test_the_last_depth_is_the_stored_answer_to_every_image(run, made, tiny_benchmark, task):
    stored = read_run_answers(run, tiny_benchmark)[task]
    for number, expected in enumerate(stored.predicted[0]):
        studied = find_image(tiny_benchmark, f"{task}:reporting:{number}")
        table = made.lens(studied, run.id)
        last = table[(table["depth"] == BLOCKS) & (table["rank"] == 1)].iloc[0]
        assert last["number"] == expected and last["right"] == (expected == stored.labels[number])
        assert made.summary(studied, run.id, PRETRAINED)["margin"][0] == pytest.approx(
            stored.margin[0, number], abs=1e-3
        )


def test_the_lens_reads_every_depth_through_the_last_section(made, towers, image, run):
    encoder, x = towers(run.id).encoder, image.inputs
    for depth in range(BLOCKS + 1):
        x = encoder.run_section(depth, x)
        logits = image.scale * normalize(encoder.head(x), dim=-1) @ image.head.T
        expected = logits.softmax(dim=-1)[0]
        rows = made.lens(image, run.id).query("depth == @depth").set_index("number")["probability"]
        np.testing.assert_allclose(rows, expected[rows.index], atol=1e-5)
    table = made.lens(image, run.id)
    assert set(table.loc[table["right"], "number"]) == {image.label}
    assert table["line"].groupby(table["depth"]).sum().nunique() == 1
    assert len(table[table["rank"] <= logit_lens.TOP_CLASSES]) == logit_lens.TOP_CLASSES * (BLOCKS + 1)
    other = made.lens(image, run.id, by_pretrained=True)
    assert not np.allclose(other["probability"].max(), table["probability"].max(), atol=1e-4)
    same = made.lens(image, PRETRAINED, by_pretrained=True)
    np.testing.assert_array_equal(same["probability"], made.lens(image, PRETRAINED)["probability"])


def test_where_an_answer_turns():
    answers = np.array([[1, 2, 3, 3], [2, 2, 3, 1], [2, 5, 3, 3]])  # (depths, images)
    assert logit_lens.settling_depth(answers).tolist() == [1, 2, 0, 2]
    assert logit_lens.parting_depth(answers, np.array([[1, 9, 3, 9]] * 3)).tolist() == [1, 0, 3, 0]


# Where it looks


def test_rows_of_attention_and_rollout_sum_to_one(made, image, run):
    table = made.attention(image, run.id)
    sums = table.groupby(["block", "view"])[["weight", "share"]].sum()
    assert len(sums) == BLOCKS * (tiny.WIDTH // 8 + 3)
    np.testing.assert_allclose(sums["share"], 1, atol=1e-6)
    others = sums[sums.index.get_level_values("view") != attention.CONTRIBUTION]
    np.testing.assert_allclose(others["weight"], 1, atol=1e-6)
    draw = torch.Generator().manual_seed(0)
    path = torch.eye(5)
    for _ in range(3):
        path = trace.extend_rollout(path, torch.randn(2, 5, 5, generator=draw).softmax(dim=-1))
        assert torch.allclose(path.sum(dim=-1), torch.ones(5))


def test_rollout_is_the_product_of_all_blocks(made, towers, image, run):
    encoder, product = towers(run.id).encoder, np.eye(tiny.TOKENS)
    x = encoder.run_section(0, image.inputs)
    for block in range(BLOCKS):
        attended = encoder.attend(block + 1, x)
        product = (attended.attention[0].mean(dim=0).double().numpy() + np.eye(tiny.TOKENS)) / 2 @ product
        x = attended.tokens
        rows = made.attention(image, run.id).query("block == @block").set_index("view")["weight"]
        np.testing.assert_allclose(rows[attention.ROLLOUT], product[0], atol=1e-6)
        np.testing.assert_allclose(rows[attention.MEAN], attended.attention[0, :, 0].mean(dim=0), atol=1e-6)
        np.testing.assert_allclose(rows["head 1"], attended.attention[0, 1, 0], atol=1e-6)
        np.testing.assert_allclose(rows[attention.CONTRIBUTION], attended.contributions[0], atol=1e-6)
    one = attention.attention_table(made.trace(image, run.id), 1)
    whole = made.attention(image, run.id)
    assert one.equals(whole[whole["block"] == 1].reset_index(drop=True))


def test_models_that_look_elsewhere(made, image, run):
    assert (made.attention_change(image, run.id, run.id)["distance"] == 0).all()
    one = made.trace(image, run.id)
    moved = replace(one, attention=torch.eye(tiny.TOKENS)[1].expand_as(one.attention))
    to_the_other = replace(one, attention=torch.eye(tiny.TOKENS)[2].expand_as(one.attention))
    assert (attention.attention_change(moved, to_the_other)["distance"] == 1).all()


# Drift


def test_drift_against_itself_is_zero_and_else_what_it_is_by_hand(made, image, run):
    assert (made.drift(image, run.id, run.id, scaled=False)["drift"] < 1e-12).all()
    one, other = (made.trace(image, key).tokens.double().numpy() for key in (run.id, PRETRAINED))
    table = made.drift(image, run.id, PRETRAINED)
    for row in table.sample(12, random_state=0).to_dict("records"):
        a, b = one[row["depth"], row["token"]], other[row["depth"], row["token"]]
        assert row["drift"] == pytest.approx(1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-9)


def test_the_scale_is_the_data_set_s_own(made, towers, image, run, tiny_benchmark):
    images, _ = tiny_benchmark.load_images("digits", "reporting")
    drifts = []
    for number in range(len(images)):
        studied = find_image(tiny_benchmark, f"digits:reporting:{number}")
        pair = made.trace(studied, run.id), made.trace(studied, PRETRAINED)
        drifts.append(patch_drift.drift_table(*pair).pivot(index="depth", columns="token", values="drift").to_numpy())
    every = np.stack(drifts)  # (n, depths, T)
    table = made.drift(image, run.id, PRETRAINED)
    for depth, rows in table.groupby("depth"):
        first, rest = rows.iloc[0], rows.iloc[1:]
        assert first["mean"] == pytest.approx(every[:, depth, 0].mean(), abs=1e-6)
        assert first["high"] == pytest.approx(np.quantile(every[:, depth, 0], 0.9), abs=1e-6)
        np.testing.assert_allclose(rest["high"], np.quantile(every[:, depth, 1:], 0.9), atol=1e-6)
    past = every[:, :, 0] > np.quantile(every[:, :, 0], 0.9, axis=0) + 1e-6  # (n, depths)
    for number in range(8):
        first = made.find_first_unusual_depths(
            find_image(tiny_benchmark, f"digits:reporting:{number}"), run.id, PRETRAINED
        )["class"]
        assert first == (int(past[number].argmax()) if past[number].any() else -1)
    assert 0 < past[:8].any(axis=1).sum() < 8

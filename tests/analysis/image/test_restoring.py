"""Restoring and occluding: by hand, and where the answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

from merging.models.model_references import PRETRAINED
from merging.study.one_image import attention, logit_lens, occlude, patch_drift, restore, trace
from merging.study.one_image.named_towers import NamedTower

BLOCKS, PATCHES = tiny.LAYERS, tiny.TOKENS - 1
NAME = "digits:reporting:3"


# Restoring and occluding


def test_restoring_own_tokens_changes_nothing(made, towers, image, run):
    own = made.trace(image, run.id)
    assert (restore.restore(towers(run.id), own, own, image)["change"].abs() < 1e-5).all()
    assert (restore.restore_tokens(towers(run.id), own, own, image)["change"].abs() < 1e-5).all()


def test_restoring_all_before_the_output_gives_the_reference_s_answer(towers, image, run, tiny_benchmark):
    """Where the last section is shared; before block 0 it gives the model's blocks on the reference's embeddings."""
    own, donor = (towers(key).encoder for key in (run.id, PRETRAINED))
    shared = {**own.tensors, **donor.load_section(donor.sections - 1).tensors}
    mixed = NamedTower("mixed", "Mixed", replace(own, tensors=shared))
    traces = trace.trace_image(mixed, image), trace.trace_image(towers(PRETRAINED), image)
    table = restore.restore(mixed, *traces, image).set_index(["depth", "tokens"])["probability"]
    last = logit_lens.compute_probabilities(traces[1].features()[-1:], image)[0, image.label]
    assert table[BLOCKS, "all"] == pytest.approx(float(last), abs=1e-5)
    assert table[BLOCKS, "class"] == pytest.approx(float(last), abs=1e-5)
    x = donor.run_section(0, image.inputs)
    for section in range(1, own.sections - 1):
        x = own.run_section(section, x)
    expected = logit_lens.compute_probabilities(mixed.encoder.head(x), image)[0, image.label]
    assert table[0, "all"] == pytest.approx(float(expected), abs=1e-5)


def test_every_single_token_is_put_in_by_hand(made, towers, image, run, monkeypatch):
    monkeypatch.setattr(restore, "BATCH_BYTES", 1)  # one token at a time
    encoder = towers(run.id).encoder
    own, donor = made.trace(image, run.id).tokens, made.trace(image, PRETRAINED).tokens
    table = made.restore(image, run.id, PRETRAINED, tokens=True).set_index(["depth", "token"])
    for depth in range(BLOCKS + 1):
        for token in range(tiny.TOKENS):
            x = own[depth].clone()[None]
            x[0, token] = donor[depth, token]
            for section in range(depth + 1, encoder.sections):
                x = encoder.run_section(section, x)
            expected = logit_lens.compute_probabilities(x, image)[0, image.label]
            assert table.loc[(depth, token), "probability"] == pytest.approx(float(expected), abs=1e-5)


def test_occluding_nothing_changes_nothing(made, towers, image, run):
    own, side = made.trace(image, run.id), tiny.SIZE // tiny.PATCH
    cut = image.inputs[0].reshape(3, side, tiny.PATCH, side, tiny.PATCH).permute(1, 3, 0, 2, 4)
    same = occlude.occlude_patches(image.inputs[0], cut.reshape(PATCHES, 3, tiny.PATCH, tiny.PATCH))
    assert torch.equal(same, image.inputs.expand_as(same))
    gray = image.inputs.mean() * torch.ones_like(image.inputs)
    plain = replace(image, inputs=gray)
    table = occlude.occlude(towers(run.id), trace.trace_image(towers(run.id), plain), plain, gray[0, :, :8, :8])
    assert (table["change"].abs() < 1e-5).all()
    assert made.occlude(image, run.id, PRETRAINED)["change"].abs().max() > 1e-3 and own.blocks == BLOCKS


def test_the_mean_patch(tiny_benchmark):
    images = tiny_benchmark.load_unlabeled("digits", "choosing")
    every = [im[y : y + 8, x : x + 8] for im in images.astype(float) for y in (0, 8) for x in (0, 8)]
    np.testing.assert_allclose(occlude.mean_patch(images, 8), np.mean(every, axis=0))


def test_permuted_patches_permute_the_grids(made, towers, image, run, tiny_benchmark):
    """Patches and their position embeddings in another order: every grid is permuted in the same way."""
    order = torch.tensor([2, 0, 3, 1])
    cut = image.inputs[0].reshape(3, 2, 8, 2, 8).permute(1, 3, 0, 2, 4).reshape(4, 3, 8, 8)[order]
    inputs = cut.reshape(2, 2, 3, 8, 8).permute(2, 0, 3, 1, 4).reshape(1, 3, 16, 16)
    rows = torch.cat([torch.zeros(1, dtype=torch.int64), order + 1])
    moved = replace(image, inputs=inputs)
    permuted = {}
    for key in (run.id, PRETRAINED):
        encoder = towers(key).encoder
        tensors = {**encoder.tensors, "positional_embedding": encoder.tensors["positional_embedding"][rows]}
        permuted[key] = NamedTower(key, "", replace(encoder, tensors=tensors))
    patch = torch.zeros(3, 8, 8)
    both = {}
    for name, studied, of in (("plain", image, towers), ("moved", moved, permuted.get)):
        one, other = (trace.trace_image(of(key), studied) for key in (run.id, PRETRAINED))
        both[name] = {
            "attention": attention.attention_table(one).pivot(
                index=["block", "view"], columns="token", values="weight"
            ),
            "drift": patch_drift.drift_table(one, other).pivot(index="depth", columns="token", values="drift"),
            "restore": restore.restore_tokens(of(run.id), one, other, studied).pivot(
                index="depth", columns="token", values="probability"
            ),
            "occlude": occlude.occlude(of(run.id), one, studied, patch).set_index("token")[["margin"]].T,
        }
    for name, grid in both["plain"].items():
        numbers = rows if grid.shape[1] == tiny.TOKENS else rows[1:] - 1
        np.testing.assert_allclose(grid.to_numpy()[:, numbers], both["moved"][name], atol=1e-5)

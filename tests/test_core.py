"""The core around the methods: parameters, families, files, fit, quantiles, the engine's promises."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.torch import load_file, save_file

import merging
from merging.checkpoints import digests, families
from merging.checkpoints.checkpoint import MappingCheckpoint
from merging.errors import Cancelled, CheckpointError, CompatibilityError, FamilyError, MergingError
from merging.formats.opening import open_checkpoint
from merging.formats.safetensors import save
from merging.inspection.fit import fit
from merging.methods.shared import saliency
from merging.numerics.quantile import kth_smallest
from merging.progress import Meter

# --- families --------------------------------------------------------------------------------------------------------

HUGGING_FACE = [
    "vision_model.embeddings.class_embedding", "vision_model.embeddings.position_embedding.weight",
    "vision_model.embeddings.patch_embedding.weight", "vision_model.pre_layrnorm.weight",
    "vision_model.encoder.layers.3.self_attn.k_proj.bias", "vision_model.encoder.layers.11.mlp.fc2.weight",
    "vision_model.post_layernorm.bias", "visual_projection.weight", "vision_model.embeddings.position_ids",
]  # fmt: skip
UNUSED_TEXT = ["positional_embedding", "text_projection", "logit_scale", "token_embedding.weight", "ln_final.weight"]


@pytest.mark.parametrize("names", [list(tiny.shapes()), HUGGING_FACE, [*tiny.shapes(), *UNUSED_TEXT]])
def test_every_name_matches_exactly_one_rule(names):
    family = families.recognize(names)
    for name in names:
        assert sum(rule.match(name) is not None for rule in family.rules) == 1, name


def test_unprefixed_names_of_both_schemes_are_known():
    assert families.recognize([n.removeprefix("visual.") for n in tiny.shapes()]).key == "open_clip_tower"
    assert families.recognize([n.removeprefix("vision_model.") for n in HUGGING_FACE]).key == "hugging_face"


def test_unused_text_tensors_are_buffers():
    described = {p.name: p for p in families.describe([*tiny.shapes(), *UNUSED_TEXT])}
    assert {described[name].role for name in UNUSED_TEXT} == {families.Role.BUFFER}


def test_odd_names_are_listed_with_the_nearest_family():
    with pytest.raises(FamilyError, match=r"open_clip.*do not know 2 of its \d+ tensors: classifier.weight, extra"):
        families.describe([*tiny.shapes(), "classifier.weight", "extra"])


# --- files -----------------------------------------------------------------------------------------------------------


def test_what_we_write_the_reference_library_reads(tmp_path):
    state = tiny.pretrained() | {"visual.half": torch.randn(3).half(), "visual.bf": torch.randn(2, 2).bfloat16()}
    state |= {"visual.count": torch.arange(4), "visual.empty": torch.empty(0, 3), "visual.scalar": torch.tensor(2.0)}
    save(tmp_path / "ours.safetensors", state, {"note": "é ü"})
    read = load_file(tmp_path / "ours.safetensors")
    assert all(torch.equal(read[name], value) for name, value in state.items())
    save_file(state, tmp_path / "theirs.safetensors", {"note": "é ü"})
    theirs, ours = (open_checkpoint(tmp_path / f"{who}.safetensors") for who in ("theirs", "ours"))
    assert theirs.digest == ours.digest == MappingCheckpoint(state, "m").digest
    assert ours.metadata == {"note": "é ü"}


def _file(tmp_path, header: object, data: bytes = b"", length: int | None = None) -> str:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
    return str(path)


def _entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


BAD_FILES = {
    "truncated": ({"w": _entry(0, 8, [2])}, b"1234", "truncated: the header promises"),
    "trailing bytes": ({"w": _entry(0, 4, [1])}, b"123456", "2 bytes follow the last tensor"),
    "overlap": ({"a": _entry(0, 8, [2]), "b": _entry(4, 12, [2])}, b"x" * 12, "'b' overlaps"),
    "hole": ({"a": _entry(0, 4, [1]), "b": _entry(8, 12, [1])}, b"x" * 12, "'b' leaves a hole"),
    "lying shape": ({"a": _entry(0, 4, [2])}, b"x" * 4, r"'a' of shape \[2\] and dtype F32 needs 8 bytes"),
    "negative size": ({"a": _entry(0, 4, [-1])}, b"x" * 4, "'a' is malformed"),
    "unknown dtype": ({"a": _entry(0, 4, [1], "F77")}, b"x" * 4, "dtype 'F77'"),
    "float offsets": ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4.0]}}, b"x" * 4, "malformed"),
    "not json": (b"{not json", b"", "not valid JSON"),
    "a list": ([1, 2], b"", "not a mapping"),
    "nothing": ({}, b"", "holds no tensors"),
    "twice": (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
              b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"x" * 4, "names 'a' twice"),
    "metadata": ({"__metadata__": {"k": 3}, "a": _entry(0, 4, [1])}, b"x" * 4, "not a mapping of text to text"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_damaged_files_are_refused_by_name(name, tmp_path):
    header, data, message = BAD_FILES[name]
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(_file(tmp_path, header, data))
    assert "bad.safetensors" in str(caught.value)


@pytest.mark.parametrize("length", [0, 2**63, 2**64 - 1, 10**6])
def test_lying_header_lengths_are_refused(length, tmp_path):
    with pytest.raises(CheckpointError, match=r"bad\.safetensors"):
        open_checkpoint(_file(tmp_path, {}, b"", length))


@pytest.mark.parametrize(
    "content,says",
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\n" + b"0" * 90, "PNG image"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"PK\x03\x04" + b"0" * 90, "zip archive"),
    ],
)
def test_other_files_are_recognized(content, says, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=says):
        open_checkpoint(tmp_path / "x.safetensors")


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, says in {"pipe": "not a regular file", ".": "a folder", "gone": "not found", "loop": "not found"}.items():
        with pytest.raises(CheckpointError, match=says):
            open_checkpoint(tmp_path / name)


def test_a_file_cut_while_open_is_an_error_not_a_crash(tmp_path):
    path = tiny.write(tmp_path / "cut.safetensors", tiny.pretrained())
    checkpoint = open_checkpoint(path)
    os.truncate(path, 4000)
    with pytest.raises(CheckpointError, match="became shorter"):
        checkpoint.state_dict()


# --- fit -------------------------------------------------------------------------------------------------------------


def test_the_report_names_everything_that_does_not_fit():
    base, experts = tiny.family(("good", "bad"))
    bad = experts["bad"]
    del bad["visual.conv1.weight"]
    bad["visual.extra"] = torch.zeros(2)
    bad["visual.proj"] = bad["visual.proj"].T.contiguous()
    bad["visual.ln_pre.weight"] = bad["visual.ln_pre.weight"].to(torch.int64)
    bad["visual.ln_pre.bias"] = bad["visual.ln_pre.bias"].half()
    bad["visual.ln_post.bias"][[2, 5]] = torch.tensor([float("nan"), float("inf")])
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    report = fit(MappingCheckpoint(base, "pretrained"), opened, values=True)
    found = {(p.tensor, p.problem, p.severity) for p in report.problems}
    assert found == {
        ("visual.conv1.weight", "missing", "error"),
        ("visual.extra", "extra", "warning"),
        ("visual.proj", "shape", "error"),
        ("visual.ln_pre.weight", "type", "error"),
        ("visual.ln_pre.bias", "precision", "warning"),
        ("visual.ln_post.bias", "not finite", "error"),
    }
    assert {p.checkpoint for p in report.problems} == {"bad"}
    assert "2 NaN or infinite, first at 2" in report.text()
    with pytest.raises(CompatibilityError, match=r"visual\.proj \(expected \(16, 8\), found \(8, 16\)\)"):
        merging.merge(base, experts)


def test_a_look_at_some_numbers_finds_what_is_not_finite_among_them(monkeypatch):
    base, experts = tiny.family(("a",))
    experts["a"]["visual.proj"].reshape(-1)[[3, 60]] = float("inf")
    opened = {"a": MappingCheckpoint(experts["a"], "a")}
    monkeypatch.setattr("merging.inspection.fit.SAMPLE", 50)
    report = fit(MappingCheckpoint(base, "pretrained"), opened, sample=True)
    assert [(p.tensor, p.problem) for p in report.errors] == [("visual.proj", "not finite")]
    assert "1 NaN or infinite of the first 50, first at 3" in report.text()


def test_a_broadcastable_shape_is_refused():
    base, experts = tiny.family(("a",))
    experts["a"]["visual.proj"] = experts["a"]["visual.proj"][:1]
    with pytest.raises(CompatibilityError, match="shape"):
        merging.merge(base, experts)


@pytest.mark.parametrize("where", ["pretrained", "expert"])
def test_numbers_that_are_not_finite_are_all_named_and_nothing_comes_out(where):
    base, experts = tiny.family(("a", "b"))
    for name in ("visual.ln_post.bias", "visual.class_embedding"):
        (base if where == "pretrained" else experts["b"])[name][1] = float("nan")
    with pytest.raises(CompatibilityError, match="not finite") as caught:
        merging.merge(base, experts, "ties")
    names = {(p.checkpoint, p.tensor) for p in caught.value.report.errors}
    who = "pretrained" if where == "pretrained" else "b"
    assert names == {(who, "visual.ln_post.bias"), (who, "visual.class_embedding")}


def test_no_experts_is_an_error():
    with pytest.raises(CompatibilityError, match="at least one expert"):
        merging.merge(tiny.pretrained(), {})


# --- quantiles -------------------------------------------------------------------------------------------------------

VALUES = st.floats(0, 1e6, width=32) | st.sampled_from([0.0, 1.0, 2.0])


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(data=hnp.arrays(np.float32, (2, 300), elements=VALUES), rank=st.integers(0, 299), piece=st.integers(1, 300))
def test_kth_smallest_is_exact(data, rank, piece):
    rows = torch.from_numpy(data)
    found = kth_smallest(lambda: rows.split(piece, dim=1), [rank, rank, 299 - rank, 299 - rank])
    assert found == [float(np.sort(row)[r]) for r in (rank, 299 - rank) for row in data]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kth_smallest_finds_what_its_sample_misleads_it_about(dtype):
    """The sample sees only every 61st number: here, exactly those lie."""
    rows = torch.rand(1, 61 * 500, dtype=dtype)
    rows[:, ::61] += 5.0
    for rank in (0, 100, 15_000, 30_000, 30_499):
        expected = float(rows.sort().values[0, rank])
        assert kth_smallest(lambda: [rows], [rank]) == [expected]


# --- saliency --------------------------------------------------------------------------------------------------------


def test_the_worked_saliency_example():
    """Three experts, five tensors, worked by hand."""
    vectors = [
        [[0, 0], [1, -1], [0.2, 0.2], [3, 0], [0.5]],
        [[0, 0], [1, 1], [0.2, 0.2], [0, 3], [0.1]],
        [[0, 0], [-1, 0], [0.2, -0.4], [0, 0], [0]],
    ]
    scores = np.array(
        [
            [
                float(saliency.deviations(torch.tensor(row, dtype=torch.float64), "deviation")[k].mean())
                for row in zip(*vectors, strict=True)
            ]
            for k in range(3)
        ]
    )
    expected = [[0, 0.833333, 0.1, 1.5, 0.3], [0, 0.833333, 0.1, 1.5, 0.1], [0, 0.666667, 0.2, 1.0, 0.2]]
    assert np.allclose(scores, expected, atol=1e-6)
    assert saliency.own_masks(scores, 0.4)[0].tolist() == [False, True, False, True, False]
    assert saliency.own_masks(scores, 0.6).tolist() == [[False, False, False, True, False]] * 3
    assert not saliency.own_masks(scores, 0.8).any()


def test_the_shared_mask_is_the_union():
    scores = np.array([[0, 0.8, 0.1, 1.5, 0.3], [0, 0.1, 0.9, 1.5, 0.2]])
    own = saliency.own_masks(scores, 0.4)
    assert saliency.final_masks(own, True)[0].tolist() == [False, True, True, True, False]
    assert saliency.threshold_index(100, 0.29) == 29


@given(ratio=st.floats(0, 1), more=st.floats(0, 1))
@settings(deadline=None)
def test_a_larger_ratio_never_keeps_more(ratio, more):
    scores = np.random.default_rng(0).random((3, 40))
    low, high = sorted((ratio, more))
    assert (saliency.own_masks(scores, high) <= saliency.own_masks(scores, low)).all()


def test_the_live_table_equals_the_edits():
    base, experts = tiny.family()
    tables = [
        merging.merge(base, experts, edits=[("lwptv", {"prune_ratio": ratio})]).tables["saliency"]
        for ratio in (0.7, 0.3)
    ]
    assert saliency.with_ratio(tables[0], 0.3).equals(tables[1])


# --- engine ----------------------------------------------------------------------------------------------------------


def test_progress_reaches_the_end_and_never_goes_back():
    base, experts = tiny.family()
    seen = []
    merging.merge(base, experts, "ties", edits=["lwptv"], progress=seen.append)
    fractions = [p.fraction for p in seen]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert {p.phase for p in seen} >= {"Surveying for LwPTV", "Surveying for TIES", "Merging with TIES"}


def test_cancel_stops_within_one_tensor():
    base, experts = tiny.family()
    stop, seen = threading.Event(), []

    def progress(p):
        seen.append(p.detail)
        if len(seen) == 5:
            stop.set()

    with pytest.raises(Cancelled):
        merging.merge(base, experts, progress=progress, cancel=stop)
    assert len(seen) == 5


def test_an_unknown_device_is_a_sentence():
    base, experts = tiny.family(("a",))
    with pytest.raises(MergingError, match="'cuda:99' is not available"):
        merging.merge(base, experts, device="cuda:99")


# --- imports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "package,forbidden",
    [
        ("merging", ("torch", "streamlit", "plotly", "pandas")),
        ("merging.engine.run, merging.runs.execute, merging.jobs.runner", ("streamlit", "plotly", "viz", "app")),
        ("viz", ("streamlit", "app")),
    ],
)
@pytest.mark.slow
def test_import_directions(package, forbidden):
    script = f"import sys, {package}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert not set(forbidden) & set(loaded)


def test_a_digest_tells_what_was_read_and_stops_when_asked(tmp_path, monkeypatch):
    path = tiny.write_family(tmp_path, experts=()).pretrained
    monkeypatch.setattr("merging.checkpoints.checkpoint.DIGEST_PIECE", 100)
    digests.DIGESTS.clear()
    seen = []
    opened = open_checkpoint(path)
    found = digests.DIGESTS.digest(opened, Meter(opened.nbytes, seen.append))
    assert found == open_checkpoint(path).digest and len(seen) > 20
    assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
    assert seen[-1].fraction == 1.0
    digests.DIGESTS.clear()
    with pytest.raises(Cancelled):
        digests.DIGESTS.digest(opened, Meter(opened.nbytes, None, lambda: True))
    assert digests.DIGESTS.remembered(opened.state()) == ""

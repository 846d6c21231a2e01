"""Merges on an accelerator: the same results, every input copied once, and what happens where its memory runs out."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import common_checks
import pandas as pd
import pytest
import tiny
import torch
from common_checks import assert_close, states
from held_tensors import find_tensors
from pretend_device import NAME, PretendedMemory, pretend_device

import merging
from merging.base import devices
from merging.base.errors import MergingError
from merging.base.numerics.quantile import SAMPLE_STRIDE
from merging.engine import run_inputs
from merging.methods import registry
from merging.methods.method import Method

ROOT = Path(__file__).resolve().parents[2]
LEARN = {"adamerging", "localize_and_stitch", "surgery", "wemoe", "twin"}  # they go through the tensors again and again
BASE, EXPERTS = common_checks.family(torch.float32)
SCALARS = sum(value.numel() for value in BASE.values()) * (len(EXPERTS) + 1)
COPIES = len(BASE) * (len(EXPERTS) + 1)


def on(device: str, merge: str, *edits: Any, **options: Any) -> merging.MergeResult:
    """A merge of the tiny family."""
    return merging.merge(BASE, EXPERTS, merge, edits=edits, device=device, **options)


@pytest.mark.full
@pytest.mark.parametrize("method", registry.list_methods(), ids=lambda method: f"{method.role}-{method.key}")
def test_every_method_gives_what_it_gives_on_the_cpu(method: Method) -> None:
    experts = dict(list(EXPERTS.items())[: method.max_experts])
    expected = common_checks.merge(method, BASE, experts)
    with pretend_device() as copied:
        found = common_checks.merge(method, BASE, experts, device=NAME)
    assert found.device == NAME.upper() and found.warnings == expected.warnings
    for one, other in zip(states(found), states(expected), strict=True):
        assert all(value.device.type == "cpu" for value in one.values())
        assert_close(one, other, BASE, 1e-5)
    for name, table in expected.tables.items():
        assert list(found.tables[name].columns) == list(table.columns) and len(found.tables[name]) == len(table)
    if method.key not in LEARN:
        passes = round(len(copied.to_device) / COPIES)
        assert len(copied.to_device) <= 1.5 * passes * COPIES  # thresholds and factors beside the inputs
        assert len(copied.to_host) <= (2 + 3 * len(EXPERTS)) * len(BASE) * (passes + 1)


@pytest.mark.parametrize("merge,passes,samples", [("task_arithmetic", 1, 0), ("emr", 2, 0), ("ties", 2, 1)])
def test_a_pass_copies_every_input_once(merge: str, passes: int, samples: int) -> None:
    """A sample for quantiles is a pass, too, of which only the sample is copied."""
    base = {name: value + 0.0 for name, value in BASE.items()}  # ties looks twice at tensors that hold -0.0
    with pretend_device() as copied:
        merging.merge(base, EXPERTS, merge, device=NAME)
    extra = len(copied.to_device) - (passes + samples) * COPIES
    sampled = samples * (len(EXPERTS) + 1) * math.ceil(SCALARS / (len(EXPERTS) + 1) / SAMPLE_STRIDE)
    assert sum(copied.to_device) - passes * SCALARS - sampled == extra * len(EXPERTS) >= 0  # rescalers: K numbers
    assert extra <= len(BASE)


def test_what_is_read_of_a_tensor_does_not_grow_with_its_blocks_scalars() -> None:
    """A merge reads two answers a tensor, the merged tensors, and all counts at the end."""
    with pretend_device() as copied:
        on(NAME, "task_arithmetic")
    assert len(copied.to_host) == 3 * len(BASE) + 2
    assert sum(copied.to_host) == SCALARS // (len(EXPERTS) + 1) + 2 * len(BASE) + 4 * len(BASE)


@pytest.mark.parametrize("key", ["surgery", "wemoe"])
def test_modules_do_not_keep_their_tower_there(key: str) -> None:
    with pretend_device():
        modules = common_checks.merge(registry.find_adapt(key), BASE, EXPERTS, device=NAME).modules
    assert modules is not None and modules.device.type == NAME
    assert {tensor.device.type for _, tensor in find_tensors(modules)} == {"cpu"}


@pytest.mark.full
@pytest.mark.parametrize("merge,edits", [("lot", ()), ("regmean_pp", ()), ("task_arithmetic", ("cat",))])
def test_exemplars_are_captured_there(merge: str, edits: tuple[str, ...]) -> None:
    images = {name: task.images for name, task in common_checks.labeled_exemplars(EXPERTS).items()}
    pretrained = tiny.checkpoint(BASE)
    expected = merging.merge(pretrained, EXPERTS, merge, edits=edits, exemplars=images, device="cpu")
    with pretend_device():
        found = merging.merge(pretrained, EXPERTS, merge, edits=edits, exemplars=images, device=NAME)
    assert_close(found.state_dict, expected.state_dict, BASE, 1e-4)


def test_blocks_follow_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_inputs, "PIECE_CPU", 256)
    expected = on("cpu", "task_arithmetic").state_dict
    numbers = []
    for free in (1 << 30, 1 << 17):
        with pretend_device(free=free) as copied:
            found = on(NAME, "task_arithmetic").state_dict
        assert all(torch.equal(found[name], value) for name, value in expected.items())
        numbers.append(len(copied.to_device))
    assert numbers[0] < numbers[1]


def _limited(largest: int, merge: str, monkeypatch: pytest.MonkeyPatch) -> tuple[merging.MergeResult, PretendedMemory]:
    monkeypatch.setattr(run_inputs, "PIECE_CPU", 256)
    with pretend_device(free=1 << 20, largest=largest) as memory:
        return on(NAME, merge), memory


def test_without_memory_blocks_get_smaller_and_the_result_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = on("cpu", "ties")
    found, memory = _limited(3 << 13, "ties", monkeypatch)
    assert memory.refused and found.device == NAME.upper()
    assert found.warnings == ("PRETEND ran out of memory, so pieces were 1/4 of the usual size.",)
    assert all(torch.equal(found.state_dict[name], value) for name, value in expected.state_dict.items())
    pd.testing.assert_frame_equal(found.tables["tensors"], expected.tables["tensors"])


def test_where_small_blocks_do_not_help_the_cpu_computes_and_the_result_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = on("cpu", "iso_c")
    found, memory = _limited(2048, "iso_c", monkeypatch)  # less than a tensor
    assert memory.refused == devices.MAX_RETRIES + 1 and found.device == "CPU"
    assert found.warnings == ("PRETEND ran out of memory even with small pieces, so the CPU computed this.",)
    assert all(torch.equal(found.state_dict[name], value) for name, value in expected.state_dict.items())


def test_work_inside_work_that_began_anew_has_small_pieces_too() -> None:
    device, sizes = torch.device(NAME), []

    def short_at(*rounds: int) -> Any:
        def compute(on: torch.device) -> None:
            sizes.append(devices.limit_bytes(on, 1 << 20))
            if len(sizes) in rounds:
                raise torch.OutOfMemoryError
            if len(sizes) == 2:
                _, words = devices.retry_on_oom(on, compute)
                assert words == ("PRETEND ran out of memory, so pieces were 1/4 of the usual size.",)

        return compute

    with pretend_device():
        devices.retry_on_oom(device, short_at(1, 3))
        assert sizes == [1 << 20, 1 << 18, 1 << 18, 1 << 16]
        assert devices.limit_bytes(device, 1 << 20) == 1 << 20


def test_other_errors_of_the_device_are_not_taken_for_that() -> None:
    begun = []

    def fails(device: torch.device) -> None:
        begun.append(device)
        raise RuntimeError("device-side assert")

    with pytest.raises(RuntimeError, match="assert"):
        devices.retry_on_oom(torch.device(NAME), fails)
    assert len(begun) == 1


def test_inputs_go_through_pinned_memory_in_their_own_type(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor)
        return tensor

    monkeypatch.setattr(devices, "PINNED_MEMORY_DEVICES", {NAME})
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    base = {name: value.half() for name, value in BASE.items()}
    experts = {name: {n: v.half() for n, v in state.items()} for name, state in EXPERTS.items()}
    merging.merge(base, experts, "task_arithmetic", device="cpu")
    assert not pinned
    with pretend_device() as copied:
        merging.merge(base, experts, "task_arithmetic", device=NAME)
    assert len(pinned) == len(copied.to_device) == COPIES and {tensor.dtype for tensor in pinned} == {torch.float16}


def test_rows_that_share_memory_are_copied_before_they_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA refuses to pin an expanded tensor, such as one row of weights for all images."""

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        assert tensor.is_contiguous(), "more than one element of the tensor refers to a single memory location"
        return tensor

    monkeypatch.setattr(devices, "PINNED_MEMORY_DEVICES", {NAME})
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    row = torch.tensor([[1.0, 2.0]])
    with pretend_device():
        there = devices.move_tensor(row.expand(3, 2), torch.device(NAME), torch.float32)
    assert torch.equal(there.cpu(), row.repeat(3, 1))


def test_a_device_without_float64_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_inputs, "DEVICES_WITHOUT_FLOAT64", {NAME})
    with pretend_device(), pytest.raises(MergingError, match="float64, which PRETEND cannot compute with"):
        merging.merge(*common_checks.family(torch.float64, 1), "weight_averaging", device=NAME)


@pytest.mark.full
def test_exact_cases_and_common_checks_take_every_device_of_the_machine() -> None:
    """``make test`` on a machine with a GPU runs them there: here the pretend accelerator, and a few of them."""
    few = "model_stock or adamerging_zero_steps or ta_surgery-"
    files = [f"tests/methods/test_{name}.py" for name in ("golden", "golden_adapt", "golden_modules", "methods")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "pretended_machine", "-v", *files,
         "-k", f"{NAME} and ({few})"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support")}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    passed = [line for line in done.stdout.splitlines() if f"{NAME}-" in line and " PASSED" in line]
    assert {line.split("::")[0] for line in passed} == set(files)


@pytest.mark.parametrize(
    "read",
    [float, bool, int, repr, torch.Tensor.item, lambda x: x.tolist(), lambda x: x.numpy(),
     lambda x: torch.equal(x, x), lambda x: x + torch.ones(1), lambda x: torch.cat([x[None], torch.ones(1)])],
)  # fmt: skip
def test_the_pretend_device_refuses_the_host(read: Any) -> None:
    with pretend_device() as copied, pytest.raises(RuntimeError, match="pretend device"):
        read(torch.ones(()).to(NAME))
    assert copied.to_device == [1] and copied.to_host == []

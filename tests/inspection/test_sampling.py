"""Samples: spread over the whole of each tensor, weighted by size, and never against what all numbers say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import random_towers
import torch
from torch import Tensor

from merging.base.errors import Cancelled
from merging.base.progress import Progress
from merging.base.settings import BUNDLED_FOLDER
from merging.models.checkpoint import Checkpoint, MappingCheckpoint, Spans
from merging.models.checkpoint_views import convert_naming
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.safetensors import SafetensorsCheckpoint, save
from merging.models.inspection.distance import Distance
from merging.models.inspection.fit_check import check_fit
from merging.models.inspection.fit_report import FitReport
from merging.models.inspection.model_sample import sample_model
from merging.models.inspection.tensor_pieces import MAX_WHOLE_NUMEL, RUN_COUNT, tensor_pieces
from merging.tasks.context import Context

EXPERTS = ("digits", "fashion", "flags", "land", "letters", "multitask", "signs", "street", "textures")
PROJ = "visual.proj"
StateDict = dict[str, Tensor]


def middle(seed: int = 0) -> StateDict:
    """A tower most of whose tensors are too large to be read whole."""
    return random_towers.tower(seed, **random_towers.MIDDLE)


def truth(base: Checkpoint, expert: Checkpoint) -> tuple[float, float]:
    """Relative change and cosine by plain arithmetic over every number."""
    change = below = above = both = 0.0
    for name, info in base.infos.items():
        for start in range(0, info.numel, 1 << 20):
            x, y = (c.read_flat(name, start, min(start + (1 << 20), info.numel)).float() for c in (base, expert))
            change, below = change + float((y - x) @ (y - x)), below + float(x @ x)
            above, both = above + float(y @ y), both + float(x @ y)
    return math.sqrt(change / below), both / math.sqrt(above * below)


def sampled(base: Checkpoint, **experts: Checkpoint) -> FitReport:
    return check_fit(base, experts, values=False, sample=True)


def in_list(base: Checkpoint, expert: Checkpoint) -> Distance:
    """The distance as the list of models has it."""
    own, below = sample_model(expert), sample_model(base)
    assert own is not None and below is not None
    return own.distance(below)


@pytest.mark.parametrize("numel", [MAX_WHOLE_NUMEL + 1, 4099, 768 * 768, 3072 * 768])
def test_runs_are_spread_over_the_whole_tensor(numel: int) -> None:
    (piece,) = tensor_pieces("w", numel, sampled=True)
    assert piece.sampled and len(piece.spans) == RUN_COUNT and piece.weight * piece.numel == pytest.approx(numel)
    for part, (start, stop) in enumerate(piece.spans):
        assert part * numel / RUN_COUNT - 1 <= start < stop <= (part + 1) * numel / RUN_COUNT
    assert [piece.position(i) for i in (0, piece.numel - 1)] == [piece.spans[0][0], piece.spans[-1][1] - 1]
    assert list(tensor_pieces("visual.w", numel, sampled=True)) == [piece]  # a tower is sampled alike under both names


def test_small_tensors_and_all_numbers_are_read_whole() -> None:
    for name, numel, some in (("a", MAX_WHOLE_NUMEL, True), ("a", 3_000_000, False), ("a", 0, True)):
        read = [span for piece in tensor_pieces(name, numel, some) for span in piece.spans]
        assert sum(stop - start for start, stop in read) == numel
        assert [start for start, _ in read] == [0, *(stop for _, stop in read)][: len(read)]


def test_runs_do_not_fall_into_step_with_rows() -> None:
    starts = [
        start % 768
        for layer in range(12)
        for piece in tensor_pieces(f"transformer.resblocks.{layer}.mlp.c_fc.weight", 3072 * 768, sampled=True)
        for start, _ in piece.spans
    ]
    assert len(set(starts)) > 80 and all(min(abs(start - at) for start in starts) < 50 for at in range(0, 768, 64))


@pytest.mark.full
def test_estimates_are_within_a_tenth_on_every_bundled_expert() -> None:
    paths = {path.stem for path in (BUNDLED_FOLDER / "models").glob("*.safetensors")}
    assert paths == {*EXPERTS, "pretrained"}
    base, experts = open_checkpoint("bundled:pretrained"), {n: open_checkpoint(f"bundled:{n}") for n in EXPERTS}
    report = sampled(base, **experts)
    for name, expert in experts.items():
        ratio, cosine = truth(base, expert)
        for distance in (report.distances[name], in_list(base, expert)):
            assert distance.sampled and distance.change_text().startswith("about ")
            assert distance.ratio == pytest.approx(ratio, rel=0.1) and distance.cosine == pytest.approx(cosine, rel=0.1)
        assert in_list(base, expert).ratio == pytest.approx(report.distances[name].ratio, rel=1e-6)
    assert not report.doubts and report.sampled


@pytest.mark.full
def test_estimates_are_within_a_tenth_on_unrelated_towers_of_full_size() -> None:
    base, other = (
        MappingCheckpoint(random_towers.tower(seed, dtype=torch.float16, **random_towers.B32), f"model {seed}")
        for seed in (0, 1)
    )
    ratio, cosine = truth(base, other)
    assert ratio > 1 and 0.3 < cosine < 0.5
    report = sampled(base, other=other)
    for distance in (report.distances["other"], in_list(base, other)):
        assert distance.sampled and distance.unrelated and "about" in distance.text()
        assert distance.ratio == pytest.approx(ratio, rel=0.1) and distance.cosine == pytest.approx(cosine, rel=0.1)
    assert [p.problem for p in report.doubts] == ["unrelated"]


def change_all(name: str, value: Tensor) -> Tensor:
    return torch.ones_like(value)


def change_a_row(name: str, value: Tensor) -> Tensor:
    mask = torch.zeros_like(value)
    mask[:: max(len(value) // 8, 1)] = 1
    return mask


def change_a_column(name: str, value: Tensor) -> Tensor:
    mask = torch.zeros_like(value)
    mask.reshape(len(value), -1)[:, 5:9] = 1
    return mask


def change_a_layer(name: str, value: Tensor) -> Tensor:
    return torch.ones_like(value) if ".resblocks.1." in name else torch.zeros_like(value)


def change_gains(name: str, value: Tensor) -> Tensor:
    return torch.ones_like(value) if ".ln_" in name else torch.zeros_like(value)


PATTERNS = (change_all, change_a_row, change_a_column, change_a_layer, change_gains)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("ratio", [0.05, 0.44, 0.49, 0.51, 0.54, 0.7, 1.1])
def test_a_sample_never_contradicts_the_full_count(pattern: Callable[[str, Tensor], Tensor], ratio: float) -> None:
    base, noise = middle(), middle(seed=7)
    mask = {name: pattern(name, value) for name, value in base.items()}
    noise = {name: mask[name] * (value - value.mean() + 0.01) for name, value in noise.items()}
    size = math.sqrt(sum(float(v.square().sum()) for v in base.values()))
    moved = math.sqrt(sum(float(v.square().sum()) for v in noise.values()))
    state = {name: value + ratio * size / moved * noise[name] for name, value in base.items()}
    below, expert = MappingCheckpoint(base, "base"), MappingCheckpoint(state, "a")
    whole, some = check_fit(below, {"a": expert}, values=True), sampled(below, a=expert)
    assert whole.distances["a"].ratio == pytest.approx(ratio, rel=1e-4)
    assert [p.problem for p in some.doubts] == [p.problem for p in whole.doubts]
    if not some.distances["a"].sampled:  # then every number was read
        assert some.distances["a"] == whole.distances["a"]
    listed = in_list(below, expert)
    assert listed.undecided or listed.unrelated == whole.distances["a"].unrelated


def elsewhere(base: Mapping[str, Tensor]) -> StateDict:
    """The weights with one change, where no sample looks."""
    (piece,) = tensor_pieces(PROJ, base[PROJ].numel(), sampled=True)
    position = next(i for i in range(base[PROJ].numel()) if not any(a <= i < b for a, b in piece.spans))
    changed = {name: value.clone() for name, value in base.items()}
    changed[PROJ].reshape(-1)[position] += 0.5
    return changed


def test_what_a_sample_does_not_show_is_not_denied() -> None:
    base, tuned = middle(), {name: 1.01 * value for name, value in middle().items()}
    experts = {"a": elsewhere(base), "b": tuned, "c": elsewhere(tuned), "d": tuned}
    report = sampled(MappingCheckpoint(base, "base"), **{n: MappingCheckpoint(s, n) for n, s in experts.items()})
    assert [(p.checkpoint, p.problem, p.found) for p in report.doubts] == [("d", "same file twice", "b")]
    assert not report.distances["a"].sampled and report.distances["b"].sampled


def test_reading_an_expert_whole_is_followed_and_can_be_stopped() -> None:
    base = middle()
    below, scalars = MappingCheckpoint(base, "base"), sum(value.numel() for value in base.values())
    steps: list[Progress] = []
    tuned = MappingCheckpoint({name: 1.01 * value for name, value in base.items()}, "b")
    check_fit(below, {"b": tuned}, values=False, sample=True, context=Context(progress=steps.append))
    assert steps == []  # a sample is quick
    experts = {"a": MappingCheckpoint(elsewhere(base), "a"), "b": tuned}
    check_fit(below, experts, values=False, sample=True, context=Context(progress=steps.append))
    assert [step.done for step in steps] == sorted({step.done for step in steps})
    assert len(steps) == len(base) and steps[-1].done == steps[-1].total == 2 * scalars
    with pytest.raises(Cancelled):
        check_fit(
            below,
            experts,
            values=False,
            sample=True,
            context=Context(progress=steps.append, cancel=lambda: len(steps) > len(base)),
        )


@pytest.mark.parametrize("kept", [0, 1])
def test_a_pretrained_model_of_zeros_can_be_compared(kept: int) -> None:
    """A share of nothing is not defined, for the whole sample or for an eighth of it."""
    base = {name: torch.zeros_like(value) for name, value in middle().items()}
    base[PROJ].reshape(-1)[:kept] = 1.0
    report = sampled(MappingCheckpoint(base, "base"), a=MappingCheckpoint(middle(), "a"))
    assert report.ok and [p.problem for p in report.doubts] == ["unrelated"] * kept


def test_numbers_that_are_not_finite_are_named_with_what_was_read() -> None:
    base, numel = middle(), middle()[PROJ].numel()
    (piece,) = tensor_pieces(PROJ, numel, sampled=True)
    broken = {name: value.clone() for name, value in base.items()}
    at = piece.position(70)
    broken[PROJ].reshape(-1)[[at, at + 1]] = torch.tensor([math.nan, math.inf])
    report = sampled(MappingCheckpoint(base, "base"), a=MappingCheckpoint(broken, "a"))
    assert [(p.tensor, p.problem) for p in report.errors] == [(PROJ, "not finite")]
    words = f"2 NaN or infinite among the {piece.numel} of {numel:,} numbers that were read, first at {at}"
    assert words in report.text() and "whether all numbers are finite is not known" in report.read
    report = check_fit(MappingCheckpoint(base, "base"), {"a": MappingCheckpoint(broken, "a")})
    assert f"2 NaN or infinite, first at {at}" in report.text()


def test_models_that_are_small_are_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    base, experts = MappingCheckpoint(middle(), "base"), {"a": MappingCheckpoint(middle(3), "a")}
    assert not check_fit(base, experts, sample=True).sampled
    monkeypatch.setattr("merging.models.inspection.fit_check.READ_ALL_BYTES", base.nbytes)
    report = check_fit(base, experts, sample=True)
    assert report.sampled and "sample" in report.read and report.distances["a"].sampled


def test_a_sample_reads_little_of_a_large_model() -> None:
    shapes = random_towers.shapes(**random_towers.B32)
    read = [piece for name, shape in shapes.items() for piece in tensor_pieces(name, math.prod(shape), sampled=True)]
    assert sum(piece.numel for piece in read) < 0.002 * sum(map(math.prod, shapes.values()))
    assert sum(len(piece.spans) for piece in read) < 1000


def test_a_sample_is_read_once_from_every_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / f"{seed}.safetensors" for seed in range(3)]
    for seed, file in enumerate(files):
        save(file, middle(seed))
    read = list[tuple[str, int]]()
    original = SafetensorsCheckpoint.read_spans

    def counted(self: SafetensorsCheckpoint, name: str, spans: Spans) -> Tensor:
        read.append((name, self._descriptor))
        return original(self, name, spans)

    monkeypatch.setattr(SafetensorsCheckpoint, "read_spans", counted)
    monkeypatch.setattr(SafetensorsCheckpoint, "read_flat", None)
    monkeypatch.setattr("merging.models.inspection.fit_check.READ_ALL_BYTES", 0)
    report = check_fit(files[0], {"a": files[1], "b": files[2]}, sample=True)
    assert report.sampled and len(read) == len(set(read)) == 3 * len(middle())


def test_a_part_of_a_tensor_has_the_numbers_at_its_places(tmp_path: Path) -> None:
    """q, k and v of a packed matrix, as a view gives them, and a transposed projection."""
    save(tmp_path / "m.safetensors", middle())
    view = convert_naming(open_checkpoint(tmp_path / "m.safetensors"), "hf")
    for name, info in view.infos.items():
        flat, spans = (
            view.read(name).flatten(),
            ((0, 1), (info.numel // 2, info.numel // 2 + 5), (info.numel - 3, info.numel)),
        )
        assert torch.equal(view.read_spans(name, spans), torch.cat([flat[slice(*span)] for span in spans])), name


def test_the_runs_of_a_sample_count_for_the_whole_of_their_tensor() -> None:
    base, expert = MappingCheckpoint(middle(), "base"), MappingCheckpoint(middle(3), "a")
    change = below = 0.0
    for name, info in base.infos.items():
        for piece in tensor_pieces(name, info.numel, sampled=True):
            x, y = piece.finite(base, name), piece.finite(expert, name)
            change, below = change + piece.weight * float((y - x) @ (y - x)), below + piece.weight * float(x @ x)
    assert sampled(base, a=expert).distances["a"].ratio == pytest.approx(math.sqrt(change / below), rel=1e-9)

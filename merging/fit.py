"""Whether pretrained and experts fit together: every tensor that does not, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import torch

from merging.checkpoints import Checkpoint
from merging.errors import CompatibilityError, first_few
from merging.families import Role

if TYPE_CHECKING:
    import pandas as pd

PIECE = 1 << 20  # scalars looked at a time when values are checked


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that does not fit. ``severity`` is "error" (cannot be merged) or "warning" (merged, but look)."""

    severity: str
    checkpoint: str
    tensor: str
    problem: str  # a key of FIXES
    expected: str
    found: str
    fix: str


FIXES = {
    "missing": "choose experts fine-tuned from this pretrained model, or add the tensor",
    "extra": "nothing to do: it is left out of the merge",
    "shape": "use checkpoints of one architecture",
    "type": "convert the tensor to a floating-point type",
    "not finite": "the file holds NaN or infinity; train or export it again",
    "precision": "nothing to do: it is computed in the pretrained model's precision, at least float32",
    "not changed": "the expert equals the pretrained model; is it the right file?",
    "same file twice": "two experts hold the same numbers; is one of them the wrong file?",
    "other names": "rename the tensors: all names differ by this prefix only",
    "nothing to merge": "choose at least one expert",
}


@dataclass(frozen=True, slots=True)
class FitReport:
    """Everything found; ``ok`` if nothing stands in the way of a merge."""

    problems: tuple[Problem, ...]
    tensors: int

    @property
    def errors(self) -> tuple[Problem, ...]:
        """What must be mended first."""
        return tuple(p for p in self.problems if p.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What is merged nevertheless."""
        return tuple(p for p in self.problems if p.severity == "warning")

    @property
    def ok(self) -> bool:
        """Whether a merge can run."""
        return not self.errors

    def text(self) -> str:
        """The report in a few lines: per checkpoint and kind of problem the first five tensors and a count."""
        lines = []
        groups: dict[tuple[str, str], list[Problem]] = {}
        for problem in self.errors or self.warnings:
            groups.setdefault((problem.checkpoint, problem.problem), []).append(problem)
        for (checkpoint, kind), found in groups.items():
            first = found[0]
            names = first_few(p.tensor for p in found)
            detail = f" (expected {first.expected}, found {first.found})" if first.expected else ""
            lines.append(f"{checkpoint}: {kind}: {names}{detail}. {FIXES[kind].capitalize()}.")
        return "\n".join(lines) or f"All {self.tensors} tensors fit."

    def table(self) -> pd.DataFrame:
        """One row per problem: severity, checkpoint, tensor, problem, expected, found, fix."""
        import pandas as pd

        columns = list(Problem.__slots__)
        return pd.DataFrame([asdict(p) for p in self.problems], columns=columns)

    def raise_if_bad(self) -> None:
        """Raise CompatibilityError if there are errors."""
        if not self.ok:
            raise CompatibilityError(self)


def fit(pretrained: Checkpoint, experts: Mapping[str, Checkpoint], *, values: bool = False) -> FitReport:
    """The report on pretrained and experts; with ``values`` every number is read and must be finite.

    Raises:
        FamilyError: the pretrained model is of no known family.
    """
    problems = list(_structure(pretrained, experts))
    if values:
        problems.extend(_not_finite("pretrained", pretrained))
        for name, expert in experts.items():
            problems.extend(_not_finite(name, expert))
        problems.extend(_repeated(pretrained, experts))
    return FitReport(tuple(problems), len(pretrained.parameters))


def _problem(severity: str, checkpoint: str, tensor: str, kind: str, expected: str = "", found: str = "") -> Problem:
    return Problem(severity, checkpoint, tensor, kind, expected, found, FIXES[kind])


def _structure(pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> Iterator[Problem]:
    if not experts:
        yield _problem("error", "experts", "(none)", "nothing to merge", "at least one expert", "none")
    for parameter in pretrained.parameters:
        info = pretrained.infos[parameter.name]
        if parameter.role != Role.BUFFER and not info.dtype.is_floating_point:
            yield _problem("error", "pretrained", parameter.name, "type", "a floating-point type", _type(info.dtype))
    for name, expert in experts.items():
        yield from _against(pretrained, name, expert)


def _against(pretrained: Checkpoint, name: str, expert: Checkpoint) -> Iterator[Problem]:
    if prefixes := _prefix(list(pretrained.infos), list(expert.infos)):
        yield _problem("error", name, "every tensor", "other names", *prefixes)
        return
    for parameter in pretrained.parameters:
        want, have = pretrained.infos[parameter.name], expert.infos.get(parameter.name)
        if have is None:
            if parameter.role != Role.BUFFER:  # buffers come from the pretrained model anyway
                yield _problem("error", name, parameter.name, "missing", str(want.shape), "nothing")
        elif have.shape != want.shape:
            yield _problem("error", name, parameter.name, "shape", str(want.shape), str(have.shape))
        elif have.dtype.is_floating_point != want.dtype.is_floating_point:
            yield _problem("error", name, parameter.name, "type", _type(want.dtype), _type(have.dtype))
        elif have.dtype != want.dtype:
            yield _problem("warning", name, parameter.name, "precision", _type(want.dtype), _type(have.dtype))
    for extra in expert.infos:
        if extra not in pretrained.infos:
            yield _problem("warning", name, extra, "extra", "no such tensor", str(expert.infos[extra].shape))


def _prefix(wanted: list[str], found: list[str]) -> tuple[str, str] | None:
    """(expected, found) names of the first tensor, if all names differ by one prefix and by nothing else."""
    for short, long in ((wanted, found), (found, wanted)):
        longer = next((name for name in long if name.endswith("." + short[0])), None)
        if longer and {longer.removesuffix(short[0]) + name for name in short} <= set(long):
            return (short[0], longer) if short is wanted else (longer, short[0])
    return None


def _repeated(pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> Iterator[Problem]:
    """Experts whose numbers are the pretrained model's, or another expert's."""
    seen: dict[str, str] = {}
    for name, expert in experts.items():
        if expert.digest == pretrained.digest:
            yield _problem("warning", name, "every tensor", "not changed", "a fine-tuned model", "the pretrained one")
        elif expert.digest in seen:
            yield _problem("warning", name, "every tensor", "same file twice", "another model", seen[expert.digest])
        seen.setdefault(expert.digest, name)


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _not_finite(name: str, checkpoint: Checkpoint) -> Iterator[Problem]:
    for tensor, info in checkpoint.infos.items():
        if not info.dtype.is_floating_point:
            continue
        count, first = 0, -1
        for start in range(0, info.numel, PIECE):
            bad = ~torch.isfinite(checkpoint.read_flat(tensor, start, min(start + PIECE, info.numel)))
            if bad.any():
                first = start + int(bad.int().argmax()) if first < 0 else first
                count += int(bad.sum())
        if count:
            yield _problem(
                "error", name, tensor, "not finite", "finite numbers", f"{count} NaN or infinite, first at {first}"
            )

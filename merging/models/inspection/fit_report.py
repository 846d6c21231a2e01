"""The report of a fit check: problems by checkpoint and kind, each with a fix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from merging.base.errors import CompatibilityError
from merging.base.text import first_few
from merging.models.inspection.distance import Distance
from merging.models.inspection.tensor_pieces import RUN_COUNT, RUN_LENGTH

if TYPE_CHECKING:
    import pandas as pd

# Kind of problem: how to fix it, as the end of a sentence.
FIX_BY_KIND = {
    "missing": "choose experts fine-tuned from this pretrained model, or add the tensor",
    "extra": "nothing to do: it is left out of the merge",
    "only here": "choose experts that have only the pretrained model's tensors; leave a head that every task has for "
    "itself out of all files",
    "other integers": "choose experts of this model: integers are not merged, and must be the pretrained model's",
    "shape": "use checkpoints of one architecture",
    "depth": "choose experts that are as deep as the pretrained model",
    "heads": "choose experts with as many attention heads as the pretrained model; if a file states them wrongly, "
    "correct its metadata or configuration",
    "activation": "choose experts with the pretrained model's activation; if a file states it wrongly, name the right "
    "one for all, in the recipe or with --activation",
    "projection": "choose a pretrained model with an output projection; without one, the merged model has none either",
    "type": "convert the tensor to a floating-point type",
    "not finite": "the file holds NaN or infinity; train or export it again",
    "resolution": "use experts of the pretrained model's image size: position embeddings of another one do not fit",
    "precision": "nothing to do: it is computed in the pretrained model's precision, at least float32",
    "rounding": "store the pretrained model in float32, so that small changes are kept",
    "range": "convert the pretrained model to float32, or use a small scaling",
    "huge numbers": "check the file: weights are never that large",
    "not changed": "the expert equals the pretrained model; is it the right file?",
    "unrelated": "it does not look fine-tuned from this pretrained model; is it the right file?",
    "other text": "nothing to do: the text side is the pretrained model's",
    "opened": "check that this is what you meant",
    "same file twice": "two experts hold the same numbers; is one of them the wrong file?",
    "other names": "rename the tensors: all names differ by this prefix only",
    "letter case": "rename the tensors: the names differ in small and capital letters only",
    "no name in common": "it is another kind of model, or its tensors were renamed; choose experts of this one",
    "other tokens": "merge models of one tokenizer, or leave the vocabularies alone (vocabulary: pretrained)",
    "partial head": "merge experts that all have this head, or that all lack it; leave out the pretrained model itself",
    "untied": "merge models that are alike, or leave vocabularies alone (vocabulary: pretrained)",
    "quantized": "give the model it was made from",
    "nothing to merge": "choose at least one expert",
}

ALL_READ_SENTENCE = "Every number of every checkpoint was read."
SAMPLED_SENTENCE = (
    f"A sample was read: {RUN_COUNT * RUN_LENGTH} numbers of each large tensor, spread over it. Distances marked as "
    "about are estimates, and whether all numbers are finite is not known."
)
# Kinds whose ``found`` is a sentence on the checkpoint.
SENTENCE_KINDS = {"other tokens", "partial head", "untied", "quantized"}
VERDICTS = FITS, DOUBTFUL, DOES_NOT_FIT = "fits", "doubtful", "does not fit"

# Kinds of warnings that mean that a merge can run but something is probably wrong: templates of their sentences.
DOUBT_TEMPLATES = {
    "not changed": "{checkpoint} holds {found}; is it the right file?",
    "unrelated": "{checkpoint} does not look fine-tuned from this pretrained model ({found}); is it the right file?",
    "projection": "{checkpoint} has an output projection ({tensors}) and the pretrained model has none, so the merged "
    "model gets none.",
    "same file twice": "{checkpoint} holds the same numbers as {found}; is one of them the wrong file?",
    "rounding": "{checkpoint}: {found}; store the pretrained model in float32.",
    "range": "{checkpoint}: merged numbers of {tensors} can reach {found}, more than {expected} holds; convert the "
    "pretrained model to float32, or use a small scaling.",
    "huge numbers": "{checkpoint} holds numbers up to {found} ({tensors}); weights are never that large.",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A difference that matters to a merge. ``severity`` is "error" (no merge) or "warning" (merge, but check it)."""

    severity: str
    checkpoint: str
    tensor: str  # empty if the problem is of the model as a whole
    problem: str  # the kind of problem, a key of FIX_BY_KIND
    expected: str
    found: str
    fix: str


def make_problem(
    severity: str, checkpoint: str, tensor: str, kind: str, expected: str = "", found: str = ""
) -> Problem:
    """A problem of a kind in FIX_BY_KIND, with its fix."""
    return Problem(severity, checkpoint, tensor, kind, expected, found, FIX_BY_KIND[kind])


@dataclass(frozen=True, slots=True)
class ProblemGroup:
    """The problems of one kind in one checkpoint."""

    severity: str
    checkpoint: str
    problem: str
    problems: tuple[Problem, ...]

    def text(self) -> str:
        """The problem and its fix in a sentence, with the first five tensors and the number of all others."""
        first_problem = self.problems[0]
        if self.problem == "opened":
            return " ".join(problem.found for problem in self.problems)
        if self.problem in SENTENCE_KINDS:
            return f"{first_problem.found}. {FIX_BY_KIND[self.problem][0].upper()}{FIX_BY_KIND[self.problem][1:]}."
        names = first_few(problem.tensor for problem in self.problems)
        detail = f"expected {first_problem.expected}, found {first_problem.found}" if first_problem.expected else ""
        if names and detail:
            detail = f" ({detail})"
        fix = FIX_BY_KIND[self.problem]
        return f"{self.problem}: {names}{detail}. {fix[0].upper()}{fix[1:]}{'' if fix.endswith('?') else '.'}"

    def sentence(self) -> str:
        """``text`` after the checkpoint's name."""
        return f"{self.checkpoint}{'' if self.problem in SENTENCE_KINDS else ':'} {self.text()}"

    def describe_doubt(self) -> str:
        """The sentence of ``DOUBT_TEMPLATES`` with the checkpoint's name; empty if this kind has no template."""
        first_problem, template = self.problems[0], DOUBT_TEMPLATES.get(self.problem, "")
        names = first_few(problem.tensor for problem in self.problems)
        return template.format(
            checkpoint=self.checkpoint, tensors=names, expected=first_problem.expected, found=first_problem.found
        )


@dataclass(frozen=True, slots=True)
class FitReport:
    """All problems; ``ok`` if none is an error."""

    problems: tuple[Problem, ...]
    tensors: int  # number of the pretrained model's tensors
    notes: tuple[str, ...] = ()  # how the files were opened, and how many tensors are merged
    distances: Mapping[str, Distance] = field(default_factory=dict)  # {expert: distance}; empty if no numbers were read
    read: str = ""  # a sentence on which numbers were read; empty if none were
    no_family: str = ""  # the reason why the pretrained model cannot be merged; empty if its family is known

    @property
    def sampled(self) -> bool:
        """Whether only some numbers of the large tensors were read."""
        return self.read == SAMPLED_SENTENCE

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Problems that must be fixed before a merge."""
        return tuple(p for p in self.problems if p.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Problems that do not prevent a merge."""
        return tuple(p for p in self.problems if p.severity == "warning")

    @property
    def doubts(self) -> tuple[Problem, ...]:
        """The warnings that mean that a merge can run but something is probably wrong."""
        return tuple(p for p in self.warnings if p.problem in DOUBT_TEMPLATES)

    @property
    def doubt_texts(self) -> tuple[str, ...]:
        """The doubts as plain sentences, one per checkpoint and kind."""
        groups = (group for group in self.groups if group.severity == "warning")
        return tuple(sentence for group in groups if (sentence := group.describe_doubt()))

    @property
    def ok(self) -> bool:
        """Whether the experts fit the pretrained model."""
        return not self.errors

    @property
    def mergeable(self) -> bool:
        """Whether a merge can run: the experts fit, and the pretrained model's family is known."""
        return self.ok and not self.no_family

    @property
    def verdict(self) -> str:
        """One of ``VERDICTS``."""
        return DOES_NOT_FIT if not self.mergeable else DOUBTFUL if self.doubts else FITS

    @property
    def groups(self) -> tuple[ProblemGroup, ...]:
        """All problems, by checkpoint and kind; errors come first."""
        grouped: dict[tuple[str, str, str], list[Problem]] = {}
        for problem in (*self.errors, *self.warnings):
            grouped.setdefault((problem.severity, problem.checkpoint, problem.problem), []).append(problem)
        return tuple(ProblemGroup(*key, tuple(problems)) for key, problems in grouped.items())

    def remove_kind(self, kind: str) -> FitReport:
        """The report without the problems of one kind."""
        return replace(self, problems=tuple(p for p in self.problems if p.problem != kind))

    def text(self) -> str:
        """The report in a few lines: a sentence for each checkpoint and kind of problem."""
        lines = [f"pretrained: {self.no_family}"] if self.no_family else []
        severity = "warning" if self.ok else "error"
        lines += [group.sentence() for group in self.groups if group.severity == severity]
        return "\n".join(lines) or ("The one tensor fits." if self.tensors == 1 else f"All {self.tensors} tensors fit.")

    def table(self) -> pd.DataFrame:
        """One row per problem: severity, checkpoint, tensor, problem, expected, found, fix."""
        import pandas as pd

        columns = list(Problem.__slots__)
        return pd.DataFrame([asdict(p) for p in self.problems], columns=columns)

    def raise_if_unfit(self) -> None:
        """Raise CompatibilityError if there are errors."""
        if not self.ok:
            raise CompatibilityError(self.text(), self)

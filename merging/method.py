"""What a method is: data that describes it, and one pure function over one slot.

Three roles. An **edit** turns task vectors into task vectors, a **merge** turns them into one merged task vector (or
one per task), an **adapt** puts a small module per task on top of a merged model. A method never sees a state dict:
the engine hands it one ``Slot`` at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from merging.families import Parameter, Role
from merging.params import NoParams, Params

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from merging.costs import LinearMap
    from merging.evidence import Moments


class Needs(StrEnum):
    """What a method must be given besides the checkpoints."""

    NOTHING = "nothing"
    EXEMPLARS = "unlabeled exemplars"
    LABELED_EXEMPLARS = "labeled exemplars"
    TEST_DATA = "unlabeled test data"


class Gradients(StrEnum):
    """Statistics of the gradients of a task's loss, one number per weight: means over single exemplars."""

    FISHER = "squared gradients of each expert's loss, labels drawn from its own prediction"
    SENSITIVITY = "absolute gradients of the pretrained model's loss, true labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """Where a method comes from."""

    key: str
    authors: str
    title: str
    venue: str
    year: int
    arxiv: str = ""

    def text(self) -> str:
        """One line for a card."""
        where = f", arXiv:{self.arxiv}" if self.arxiv else ""
        return f"{self.authors.rstrip('.')}. {self.title}. {self.venue} {self.year}{where}."


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor (or, for elementwise chains, one flat piece of it) as a method sees it.

    ``pretrained`` has some shape S; ``task_vectors`` is (K, *S), one row per expert in the order of ``experts``. Both
    are in the compute dtype, must not be changed in place, and are good until the loop that gave the slot goes on.
    ``start`` is the flat offset of a piece. A method that takes long over one tensor calls ``tick`` with the share of
    it that is done, in [0, 1]: that is what progress and cancel live on, and it may raise Cancelled. What a method
    finds on the way to a merged tensor it tells ``note``: the name of a table and one row of it, as keywords. Only
    whole tensors have these two, and notes are kept in the pass that merges, not in surveys. ``gradients`` (K, *S) are
    there for methods that ask for them: row k is of task k's loss.
    """

    parameter: Parameter
    experts: tuple[str, ...]
    pretrained: Tensor
    task_vectors: Tensor
    start: int = 0
    look: Callable[[], tuple[Moments, ...] | None] = lambda: None
    tick: Callable[[float], None] = lambda share: None
    note: Callable[..., None] = lambda table, **row: None
    gradients: Mapping[Gradients, Tensor] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[Moments, ...] | None:
        """Moments of the rows that enter this tensor, one per expert; None where none enter it or none are known.

        For methods that need exemplars. Asking is what costs: the exemplars run through the network.
        """
        return self.look()

    @property
    def name(self) -> str:
        """The tensor's name in the pretrained checkpoint."""
        return self.parameter.name

    @property
    def role(self) -> Role:
        """What the tensor is to the network."""
        return self.parameter.role

    @property
    def block(self) -> int | None:
        """Index of the residual block from 0, None outside the blocks."""
        return self.parameter.block

    def with_task_vectors(self, task_vectors: Tensor) -> Slot:
        """The same slot after an edit."""
        return dataclasses.replace(self, task_vectors=task_vectors)


class SlotStream(Protocol):
    """A first look at all tensors, as the earlier stages of the chain leave them; every loop streams them anew."""

    @property
    def experts(self) -> tuple[str, ...]: ...

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    @property
    def numels(self) -> tuple[int, ...]: ...  # scalars per tensor, in the order of ``parameters``

    @property
    def numel(self) -> int: ...  # scalars per expert, over all tensors

    # Scalars and tensors of an unused text tower that a recipe wants counted in every global quantile. Their task
    # vectors are exactly zero and are not streamed.
    @property
    def dead_numel(self) -> int: ...

    @property
    def dead_tensors(self) -> int: ...

    def __iter__(self) -> Iterator[Slot]: ...


@dataclass(frozen=True, slots=True)
class Survey:
    """What a survey found: ``found`` for the method itself, tables and warnings for the reader."""

    found: Any
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


EditFunction = Callable[[Slot, Any, Any], "Tensor"]
SurveyFunction = Callable[[SlotStream, Any], Survey]
Earlier = Sequence[tuple[str, Params]]  # the edits before a step, each with its parameters; a key may come twice


@dataclass(frozen=True, kw_only=True)
class Method:
    """A registered method. ``run(slot, params, found)`` is pure: no I/O, no globals, no change in place."""

    role: ClassVar[str] = "method"

    key: str
    title: str
    summary: str  # the idea, in a sentence or two
    formula: str  # LaTeX
    cite: Citation
    run: EditFunction
    params: type[Params] = NoParams
    needs: Needs = Needs.NOTHING
    needs_when: Callable[[Any], bool] = lambda _: True  # whether, with these parameters, it needs that
    gradients: Gradients | None = None  # which of them it needs, beside or instead of layer inputs
    variant: str = ""  # what ours does where the literature disagrees
    version: int = 1  # raised whenever results change, so that stored runs are not mistaken for new ones
    survey: SurveyFunction | None = None
    survey_when: Callable[[Any], bool] = lambda _: True
    survey_passes: int = 1  # loops over all tensors, for the estimate of time left
    # A sentence that says why this method, with these parameters, makes no sense after the edits before it; empty
    # where it does.
    refuses: Callable[[Any, Earlier], str] = lambda params, before: ""
    # Multiply-adds that it does to one linear map beyond passes over the scalars, for the estimate of time.
    algebra: Callable[[Any, LinearMap], float] = lambda params, matrix: 0.0
    # True if every scalar of the result depends only on the same position of the inputs (and on the survey). Chains of
    # such methods stream in pieces that fit the processor's cache.
    elementwise: Callable[[Any], bool] = lambda _: False

    def needed(self, params: Params) -> Needs:
        """What it must be given with these parameters."""
        return self.needs if self.needs_when(params) else Needs.NOTHING

    def surveys(self, params: Params) -> bool:
        """Whether a first pass is needed with these parameters."""
        return self.survey is not None and self.survey_when(params)


@dataclass(frozen=True, kw_only=True)
class Edit(Method):
    """Task vectors in, task vectors out: ``run`` returns (K, *S)."""

    role: ClassVar[str] = "edit"
    # Which scalars any expert keeps, as booleans (*S), None for all: ``kept(slot before the edit, params, found)``. The
    # others stay pretrained bit for bit, whatever the merge does.
    kept: Callable[[Slot, Any, Any], Tensor | None] = lambda slot, params, found: None
    # Whether the survey found that a whole tensor is zeroed for every expert: then the experts' are not even read.
    drops: Callable[[Parameter, Any], bool] = lambda parameter, found: False


@dataclass(frozen=True, kw_only=True)
class Merge(Method):
    """Task vectors in, one merged task vector out: ``run`` returns (*S), or (K, *S) if ``per_task``."""

    role: ClassVar[str] = "merge"
    per_task: bool = False


@dataclass(frozen=True, kw_only=True)
class Adapt(Method):
    """A merged model and data in, a small module per task out."""

    role: ClassVar[str] = "adapt"


M = TypeVar("M", bound=Method)

REGISTERED: dict[tuple[str, str], Method] = {}


def register(method: M) -> M:
    """Enter a method; refuses a key that is taken. Method files end with a call of this."""
    slot = (method.role, method.key)
    if slot in REGISTERED:
        raise ValueError(f"two {method.role}s are called {method.key!r}")
    method.params.owner = method.key if method.params is not NoParams else ""
    REGISTERED[slot] = method
    return method

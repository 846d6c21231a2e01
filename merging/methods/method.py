"""What a method is: data that describes it, and one pure function over one slot.

Three roles. An **edit** turns task vectors into task vectors, a **merge** turns them into one merged task vector (or
one per task), an **adapt** puts modules for tasks, or a router, on top of a merged model. A method never sees a state
dict: the engine hands it one ``Slot`` at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from merging.methods.adapted_network import AdaptedTower, Learned, MergedNetwork, Parts, Shapes, Sizes
from merging.methods.params import NoParams, Params
from merging.methods.slot import Gradients, Provisional, Slot, SlotStream, Survey
from merging.models.families import LINEAR_MAPS, Parameter, Role

if TYPE_CHECKING:
    from torch import Tensor

    from merging.base.numerics.flops import LinearMap
    from merging.methods.learning import Blend  # loads torch


class Needs(StrEnum):
    """What a method must be given besides the checkpoints."""

    NOTHING = "nothing"
    EXEMPLARS = "unlabeled exemplars"
    LABELED_EXEMPLARS = "labeled exemplars"
    TEST_DATA = "unlabeled test data"


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
        """The citation in one line, for a card."""
        where = f", arXiv:{self.arxiv}" if self.arxiv else ""
        return f"{self.authors.rstrip('.')}. {self.title}. {self.venue} {self.year}{where}."


EditFunction = Callable[[Slot, Any, Any], "Tensor"]
ProvisionalFunction = Callable[[Slot, Any, Any], Provisional]
SurveyFunction = Callable[[SlotStream, Any], Survey]
LearnFunction = Callable[["Blend", Any], Survey]
LINEAR_WEIGHT = Parameter("weight", Role.LINEAR, "", "", None, 0)  # what methods treat as a matrix if they know any
Earlier = Sequence[tuple[str, Params]]  # the edits before a step, each with its parameters; a key may come twice


@dataclass(frozen=True, kw_only=True)
class Method:
    """A registered method.

    What it computes is pure: no I/O, no globals, no change in place. ``run(slot, params, statistics)`` of an edit or a
    merge gets the ``statistics`` of its survey, None if it made none.
    """

    role: ClassVar[str] = "method"

    key: str
    title: str
    summary: str  # the idea, in a sentence or two
    formula: str  # LaTeX
    cite: Citation
    params: type[Params] = NoParams
    needs: Needs = Needs.NOTHING
    needs_when: Callable[[Any], bool] = lambda _: True  # whether it needs that with these parameters
    gradients: Gradients | None = None  # the statistic that it needs, beside or instead of layer inputs
    heads: bool = False  # whether it needs each task's zero-shot head beside the images
    variant: str = ""  # what this implementation does where the literature disagrees
    version: int = 1  # raised whenever results change, so that stored runs are not mistaken for new ones
    survey: SurveyFunction | None = None
    survey_when: Callable[[Any], bool] = lambda _: True
    survey_passes: int = 1  # loops over all tensors
    # Called instead of the survey where the method needs data with its parameters: it learns on images of the tasks.
    learn: LearnFunction | None = None
    # Images that run forward and backward while it learns, by the parameters and the number of images of every task.
    learns_on: Callable[[Any, Sequence[int]], int] = lambda params, images: 0
    # Models that it reads meanwhile, each once or often, by the parameters and the number of experts.
    learn_reads: Callable[[Any, int], int] = lambda params, experts: 0
    loss: str = ""  # what a method that learns makes small, with its unit
    # The merge of the same task vectors, key and parameters, that learning starts from; None where there is none.
    starts_from: Callable[[Any], tuple[str, dict[str, Any]] | None] = lambda params: None
    # A sentence that says why this method, with these parameters, makes no sense after the edits before it; empty
    # where it makes sense.
    refuses: Callable[[Any, Earlier], str] = lambda params, before: ""
    # What a step does to these experts' tensors, as plain data for the id of a run, where its parameters can say the
    # same in several ways; None: its parameters.
    content: Callable[[Any, Sequence[str], Sequence[Parameter]], Any] | None = None
    # The parameters that stand for all that have this content, by which chains are compared.
    plainest: Callable[[Any, Sequence[str], Sequence[Parameter]], Any] | None = None
    # Floating-point operations of its products and decompositions on one linear map, beyond passes over the scalars.
    algebra: Callable[[Any, LinearMap], float] = lambda params, matrix: 0.0
    algebra_on: frozenset[Role] = LINEAR_MAPS  # the roles of the tensors that ``algebra`` is about
    # True if every scalar of a tensor's result depends only on the same position of the inputs (and on the survey).
    # Chains of methods of which that is true for every tensor stream in pieces that fit the processor's cache.
    elementwise: Callable[[Any, Parameter], bool] = lambda params, parameter: False

    def needs_for(self, params: Params) -> Needs:
        """What the method must be given with these parameters."""
        return self.needs if self.needs_when(params) else Needs.NOTHING

    def is_elementwise(self, params: Params) -> bool:
        """Whether it treats even a linear weight scalar by scalar, and so every tensor."""
        return self.elementwise(params, LINEAR_WEIGHT)

    @property
    def reads_layer_inputs(self) -> bool:
        """Whether its data are the inputs of layers, which can be given in place of images."""
        return self.gradients is None and self.learn is None and self.role != "adapt"

    def learns(self, params: Params) -> bool:
        """Whether it learns on images with these parameters."""
        return self.learn is not None and self.needs_for(params) != Needs.NOTHING

    def surveys(self, params: Params) -> bool:
        """Whether a first pass is needed with these parameters."""
        return self.survey is not None and self.survey_when(params)


@dataclass(frozen=True, kw_only=True)
class Edit(Method):
    """Task vectors in, task vectors out: ``run`` returns (K, *S)."""

    role: ClassVar[str] = "edit"

    run: EditFunction
    # Which scalars any expert keeps, as booleans (*S), None for all; the slot is the one before the edit. The others
    # stay pretrained bit for bit, whatever the merge does.
    kept: Callable[[Slot, Any, Any], Tensor | None] = lambda slot, params, statistics: None
    # Whether, by the survey's statistics, the edit zeroes a tensor for every expert, which are then not even read.
    drops: Callable[[Parameter, Any], bool] = lambda parameter, statistics: False
    # Whether, with these parameters, it edits the merged task vector instead: the slot has one row (K rows after a
    # merge per task). Such a step is the last edit of a chain.
    after_merge: Callable[[Any], bool] = lambda _: False


@dataclass(frozen=True, kw_only=True)
class Merge(Method):
    """Task vectors in, one merged task vector out: ``run`` returns (*S), or (K, *S) if ``per_task``."""

    role: ClassVar[str] = "merge"

    run: EditFunction
    per_task: bool = False
    # What stands for ``run`` in the pass that merges, for a merge whose statistics lack a count over all tensors: that
    # pass counts, and only the slots in which the count decides something are merged once more, by ``run``, with the
    # statistics that their method ``counted`` makes of the count.
    provisional: ProvisionalFunction | None = None
    # Whether its layer inputs come through the layers merged before, so that it needs the images themselves.
    through_merged: bool = False
    # Whether it takes the factors of task vectors where they are known and few, in place of decomposing matrices.
    in_factors: bool = False

    @property
    def reads_layer_inputs(self) -> bool:
        """Whether its data are the inputs of layers in the experts, which can be given in place of images."""
        return super().reads_layer_inputs and not self.through_merged


@dataclass(frozen=True, kw_only=True)
class Adapt(Method):
    """A merged model and images in, what is learned on top of the model out."""

    role: ClassVar[str] = "adapt"

    train: Callable[[MergedNetwork, Any], Learned]
    shapes: Callable[[Any, Sizes], Shapes]  # of what is learned, by the parameters
    # Features (n, e) of images through the model and what was learned; the task is None where nobody knows it.
    features: Callable[[AdaptedTower, Learned, Tensor, str | None, Any], Tensor]
    # The weights by which images mix what is stored of the tasks, (n, ..., K); None: no image is routed.
    routing: Callable[[AdaptedTower, Learned, Tensor, Any], Tensor] | None = None
    # What is stored of one tensor for each task, and of which tensors. The slot is the pretrained model's with the task
    # vectors as the edits leave them or, with ``exclusive``, the merged model's with the experts as they came minus it.
    stores: Callable[[Slot, Any], list[Parts]] | None = None
    stores_of: Callable[[Parameter], bool] = lambda parameter: True
    exclusive: bool = False
    as_they_came: bool = False  # whether that are the experts minus the pretrained model, without edits
    mixes_on_pretrained: bool = False  # whether images mix what is stored on the pretrained tensors, not the merged
    # Which tasks (n, K) an image may belong to, by its weights (n, K): then the method can choose an image's head, too.
    names: Callable[[Tensor, Any], Tensor] | None = None
    needs_task: bool = False  # whether somebody must say which task an image belongs to
    # Updates on features that are read once, and the rows of features in all of them together, by the parameters and
    # the number of images of every task.
    updates: Callable[[Any, Sequence[int]], tuple[int, int]] = lambda params, images: (0, 0)
    plain_code: str = ""  # lines of plain torch that do the same, for a card

    @property
    def feature_passes(self) -> int:
        """Models that every image runs through once before learning: the merged one, and its task's expert."""
        return 0 if self.mixes_on_pretrained else 2 if self.needs_task else 1


M = TypeVar("M", bound=Method)

REGISTERED: dict[tuple[str, str], Method] = {}


def register(method: M) -> M:
    """Register a method; raises ValueError if its key is taken. Every method file ends with a call of it."""
    entry = (method.role, method.key)
    if entry in REGISTERED:
        raise ValueError(f"two {method.role}s have the key {method.key!r}")
    method.params.owner = method.key if method.params is not NoParams else ""
    REGISTERED[entry] = method
    return method

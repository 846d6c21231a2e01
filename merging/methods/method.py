"""What a method is: data that describes it, and one pure function over one slot.

A method has one of three roles. An **edit** turns task vectors into task vectors, a **merge** turns them into one
merged task vector (or one per task), an **adapt** adds modules per task, or a router, to a merged model. A chain is any
number of edits, one merge and at most one adapt; each of these, with its parameters, is a step. A method never sees a
state dict: the engine passes it one ``Slot`` at a time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from merging.base.errors import MethodError
from merging.methods.adapted_network import AdaptedTower, Learned, MergedNetwork, Parts, Shapes, Sizes
from merging.methods.origins import ORIGINS, Origin, OriginKind, describe_session
from merging.methods.params import NoParams, Params
from merging.methods.slot import Gradients, ResultBeforeCount, Slot, SlotStream, Survey
from merging.models.families import LINEAR_MAPS, Parameter, Role

if TYPE_CHECKING:
    from torch import Tensor

    from merging.base.numerics.flops import LinearMap
    from merging.methods.learning import Blend  # loads torch


class Needs(StrEnum):
    """The data that a method needs besides the checkpoints."""

    NOTHING = "nothing"
    EXEMPLARS = "unlabeled exemplars"
    LABELED_EXEMPLARS = "labeled exemplars"
    TEST_DATA = "unlabeled test data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """The paper or software in which a method was published."""

    key: str
    authors: str
    title: str
    venue: str
    year: int
    arxiv: str = ""

    def text(self) -> str:
        """The citation in one line, for a card."""
        arxiv = f", arXiv:{self.arxiv}" if self.arxiv else ""
        return f"{self.authors.rstrip('.')}. {self.title}. {self.venue} {self.year}{arxiv}."


EditFunction = Callable[[Slot, Any, Any], "Tensor"]
RunBeforeCount = Callable[[Slot, Any, Any], ResultBeforeCount]
SurveyFunction = Callable[[SlotStream, Any], Survey]
LearnFunction = Callable[["Blend", Any], Survey]
LINEAR_WEIGHT = Parameter("weight", Role.LINEAR, "", "", None, 0)  # a typical linear map
EarlierEdits = Sequence[tuple[str, Params]]  # (key, parameters) of the edits before a step; a key may occur twice


@dataclass(frozen=True, kw_only=True)
class Method:
    """A registered method.

    Its functions are pure: no I/O, no globals, no change in place. ``run(slot, params, statistics)`` of an edit or a
    merge receives the ``statistics`` of its survey, or None if there was no survey.
    """

    role: ClassVar[str] = "method"

    key: str
    title: str
    summary: str  # the idea, in a sentence or two
    formula: str  # LaTeX
    cite: Citation
    params: type[Params] = NoParams
    needs: Needs = Needs.NOTHING
    needs_when: Callable[[Any], bool] = lambda _: True  # whether it needs the data of ``needs`` with these parameters
    gradients: Gradients | None = None  # the statistic of gradients that it needs in place of layer inputs
    heads: bool = False  # whether it needs each task's zero-shot head in addition to the images
    variant: str = ""  # the choices of this implementation where the literature disagrees
    max_experts: int | None = None  # the most experts that it merges; None for any number
    # Whether an expert may have several checkpoints, as ``merging.models.task_checkpoints`` names them.
    several_checkpoints: bool = False
    version: int = 1  # raised whenever results change, so that stored runs are not mistaken for new ones
    survey: SurveyFunction | None = None  # a pass over all tensors before the merge, whose statistics ``run`` receives
    survey_when: Callable[[Any], bool] = lambda _: True  # whether these parameters need the survey
    survey_passes: int = 1  # the number of times that a survey reads all tensors
    # Learns on images of the tasks. It is called in place of the survey if the parameters need data (``needs_when``).
    learn: LearnFunction | None = None
    # The number of images that run forward and backward during learning, from the parameters and each task's number of
    # images.
    count_images_processed: Callable[[Any, Sequence[int]], int] = lambda params, images: 0
    # The number of reads of whole models during learning, from the parameters and the number of experts.
    learn_reads: Callable[[Any, int], int] = lambda params, experts: 0
    loss: str = ""  # the loss that a method that learns minimizes, with its unit
    # The merge (key, parameters) of the same task vectors from which learning starts; None if there is none.
    starts_from: Callable[[Any], tuple[str, dict[str, Any]] | None] = lambda params: None
    # A sentence that explains why this method, with these parameters, makes no sense after the edits before it; empty
    # if it makes sense.
    refuses: Callable[[Any, EarlierEdits], str] = lambda params, before: ""
    # The effect of a step on these experts' tensors, as plain data for the id of a run; raises ParameterError if the
    # parameters do not fit the tensors. None if different parameters always have different effects: the parameters
    # then identify the effect.
    content: Callable[[Any, Sequence[str], Sequence[Parameter]], Any] | None = None
    # The simplest parameters with the same ``content``; chains are compared by these.
    plainest: Callable[[Any, Sequence[str], Sequence[Parameter]], Any] | None = None
    # Floating-point operations of its products and decompositions of one linear map; elementwise work is not counted.
    algebra: Callable[[Any, LinearMap], float] = lambda params, matrix: 0.0
    algebra_on: frozenset[Role] = LINEAR_MAPS  # the roles of the tensors that ``algebra`` describes
    # True if every scalar of a tensor's result depends only on the same position of the inputs (and on the survey).
    # If that holds for every tensor and every method of a chain, tensors stream in pieces that fit the CPU's cache.
    elementwise: Callable[[Any, Parameter], bool] = lambda params, parameter: False

    def needs_for(self, params: Params) -> Needs:
        """The data that the method needs with these parameters."""
        return self.needs if self.needs_when(params) else Needs.NOTHING

    def is_elementwise(self, params: Params) -> bool:
        """Whether the method works scalar by scalar on all tensors; if so on a linear weight, it always does."""
        return self.elementwise(params, LINEAR_WEIGHT)

    @property
    def reads_layer_inputs(self) -> bool:
        """Whether the method needs the rows that enter layers, which a caller can pass in place of images."""
        return self.gradients is None and self.learn is None and self.role != "adapt"

    def learns(self, params: Params) -> bool:
        """Whether the method learns on images with these parameters."""
        return self.learn is not None and self.needs_for(params) != Needs.NOTHING

    @property
    def origin(self) -> Origin | None:
        """Where an own method comes from; None for a method of this program."""
        return ORIGINS.get((self.role, self.key))

    @property
    def source_digest(self) -> str:
        """The digest of the source of an own method; empty for a method of this program."""
        return self.origin.digest if self.origin else ""

    def surveys(self, params: Params) -> bool:
        """Whether these parameters need a survey, a pass over all tensors before the merge."""
        return self.survey is not None and self.survey_when(params)


@dataclass(frozen=True, kw_only=True)
class Edit(Method):
    """Task vectors in, task vectors out: ``run`` returns (K, *S)."""

    role: ClassVar[str] = "edit"

    run: EditFunction
    # The mask (*S) of the scalars that any expert keeps, None for all; the slot is the one before the edit. The other
    # scalars stay pretrained bit for bit, whatever the merge does.
    kept: Callable[[Slot, Any, Any], Tensor | None] = lambda slot, params, statistics: None
    # Whether, by the survey's statistics, the edit zeroes a tensor for every expert; the experts' tensors are then not
    # read.
    drops: Callable[[Parameter, Any], bool] = lambda parameter, statistics: False
    # Whether, with these parameters, it edits the merged task vector instead: the slot has one row, or K rows after a
    # merge that gives one model per task. Such a step must be the last edit of a chain.
    after_merge: Callable[[Any], bool] = lambda _: False


@dataclass(frozen=True, kw_only=True)
class Merge(Method):
    """Task vectors in, one merged task vector out: ``run`` returns (*S), or (K, *S) if ``per_task``."""

    role: ClassVar[str] = "merge"

    run: EditFunction
    per_task: bool = False
    # Replaces ``run`` while the statistics lack a count over all tensors, such as the votes of TIES. The pass that
    # merges counts, and then only those slots are merged again, by ``run``, whose result the count can change.
    # ``statistics.with_votes(count)`` gives their statistics.
    run_before_count: RunBeforeCount | None = None
    # Whether its layer inputs pass through the layers that are already merged; it then needs the images themselves.
    through_merged: bool = False
    # Whether it uses low-rank factors of task vectors, where they are known, in place of the whole matrices.
    in_factors: bool = False

    @property
    def reads_layer_inputs(self) -> bool:
        """Whether the method needs layer inputs of the experts, which a caller can supply in place of images."""
        return super().reads_layer_inputs and not self.through_merged


@dataclass(frozen=True, kw_only=True)
class Adapt(Method):
    """A merged model and images in, modules learned on top of the model out."""

    role: ClassVar[str] = "adapt"

    train: Callable[[MergedNetwork, Any], Learned]
    shapes: Callable[[Any, Sizes], Shapes]  # the shapes of the learned tensors, from the parameters
    # Features (n, e) of images (n, 3, h, w) from the model and the learned modules; the task is None if it is unknown.
    features: Callable[[AdaptedTower, Learned, Tensor, str | None, Any], Tensor]
    # The weights (n, ..., K) by which each image mixes the tasks' stored tensors; None: no image is routed.
    routing: Callable[[AdaptedTower, Learned, Tensor, Any], Tensor] | None = None
    # The parts of one tensor that are stored for each task; ``stores_of`` selects the tensors. The slot has the
    # pretrained tensor and the edited task vectors. With ``exclusive`` the slot has the merged tensor in place of the
    # pretrained one, and in place of task vectors the difference of every unedited expert from the merged tensor.
    stores: Callable[[Slot, Any], list[Parts]] | None = None
    stores_of: Callable[[Parameter], bool] = lambda parameter: True
    exclusive: bool = False
    as_they_came: bool = False  # whether the slot's task vectors are those before the edits
    mixes_on_pretrained: bool = False  # whether the stored parts are added to the pretrained, not the merged tensors
    # The tasks (n, K), booleans, to which images may belong, from their weights (n, K). With it, the method also
    # chooses the head of an image whose task is unknown.
    candidate_tasks: Callable[[Tensor, Any], Tensor] | None = None
    needs_task: bool = False  # whether the task of an image must be known
    # For methods that learn on features: the number of updates, and the rows of features in all updates together, from
    # the parameters and every task's number of images. The features are computed once.
    updates: Callable[[Any, Sequence[int]], tuple[int, int]] = lambda params, images: (0, 0)
    plain_code: str = ""  # the same computation in plain torch, for a card

    @property
    def feature_passes(self) -> int:
        """The number of models that process every image once before learning: merged model and, if needed, expert."""
        return 0 if self.mixes_on_pretrained else 2 if self.needs_task else 1


M = TypeVar("M", bound=Method)

KEY_PATTERN = re.compile("[a-z][a-z0-9_]{0,39}")
MARKUP = re.compile(r"[*_`\[\]<>$\\{}~|#:@\x00-\x1f\x7f]|www\.")  # characters that mean something in Markdown
FOLDERS = {"edit": "edits", "merge": "merges", "adapt": "adapts"}  # of this program's methods, by role
# Earlier keys of released methods, which are still found.
ALIASES = {"weight_average": "weight_averaging"}
OUR_MODULES = "merging.methods."  # the beginning of the names of this program's modules of methods
REGISTERED: dict[tuple[str, str], Method] = {}
_collected: ContextVar[list[tuple[Method, int]] | None] = ContextVar("collected", default=None)


def register(method: M) -> M:
    """Register a method and return it; every method file ends with this call.

    A notebook may register a method again, which replaces it. A file of the user's folder is registered as a whole,
    after it was read without an error.

    Raises:
        MethodError: the key is taken, or a field is wrong.
    """
    caller = sys._getframe(1)
    module = str(caller.f_globals.get("__name__", ""))
    collected = _collected.get()
    if module.startswith(OUR_MODULES):
        if (method.role, method.key) in REGISTERED:
            raise MethodError(f"two {method.role}s have the key {method.key!r}.")
        add_method(method, None)
    elif collected is not None:
        collected.append((method, caller.f_lineno))
    else:
        if problem := find_problem(method, module):
            raise MethodError(f"{problem}.")
        add_method(method, describe_session(method, caller))
    return method


def find_problem(method: Any, module: str = "") -> str:
    """Why something that is not ours cannot be registered, in a sentence without its end's full stop; empty if it can.

    ``module`` is the module that registers it; a session may register a method again.
    """
    if not isinstance(method, Edit | Merge | Adapt):
        return f"register takes an Edit, a Merge or an Adapt, not {type(method).__name__}"
    if not isinstance(method.key, str) or not KEY_PATTERN.fullmatch(method.key):
        return f"the key {method.key!r} must be lower-case letters, digits and underscores, at most 40, a letter first"
    if taken := find_owner(method.key, module):
        return f"two {taken[0]}s have the key {method.key!r}" if taken[0] == method.role else (
            f"the key {method.key!r} is that of an existing {taken[0]}{taken[1]}")  # fmt: skip
    if not (isinstance(method.params, type) and issubclass(method.params, Params)):
        return f"params of {method.key!r} must be a subclass of Params"
    if method.params is not NoParams and method.params.__module__.startswith(OUR_MODULES):
        return f"params of {method.key!r} are {method.params.__name__} itself, of another method; subclass it"
    return _find_wrong_field(method) or _find_wrong_parameter(method) or _find_failing_fact(method)


def find_owner(key: str, module: str) -> tuple[str, str] | None:
    """The role of the method that has a key already, and where it comes from, in words; None if the key is free.

    What ``module`` registered itself in this session does not count.
    """
    for role, folder in FOLDERS.items():
        if key in ALIASES or (Path(__file__).parent / folder / f"{key}.py").is_file():
            return role, ""
        if (role, key) in REGISTERED:
            origin = ORIGINS.get((role, key))
            if origin is None or origin.kind is not OriginKind.SESSION or origin.module != module:
                return role, f" ({origin})" if origin else ""
    return None


def _find_wrong_field(method: Method) -> str:
    """Why a field's value cannot be one; empty if all can."""
    texts = {"title": 60, "summary": 600, "formula": 2000, "variant": 1000, "loss": 200}
    for name, limit in texts.items():
        value = getattr(method, name)
        if not isinstance(value, str) or len(value) > limit or (not value and name in ("title", "summary")):
            return f"{name} of {method.key!r} must be a text of at most {limit} characters"
    if not isinstance(method.cite, Citation) or not isinstance(method.needs, Needs):
        return f"cite of {method.key!r} must be a Citation, and needs one of Needs"
    if MARKUP.search(method.title):
        return f"the title {method.title!r} must be plain words, without signs of Markdown"
    if "$" in method.formula:
        return f"the formula of {method.key!r} must be LaTeX without dollar signs"
    if type(method.version) is not int or not (method.max_experts is None or type(method.max_experts) is int):
        return f"version and max_experts of {method.key!r} must be whole numbers"
    functions = [name for name in ("run", "train", "features", "shapes") if hasattr(method, name)]
    wrong = [name for name in functions if not callable(getattr(method, name))]
    return f"{wrong[0]} of {method.key!r} must be a function" if wrong else ""


def _find_wrong_parameter(method: Method) -> str:
    """Why a parameter cannot be one; empty if all can."""
    try:
        bounds = method.params.bounds()
        method.params()
    except (KeyError, TypeError, ValueError) as error:
        made = "real, fraction, integer, choice, flag or rules"
        return f"the parameters of {method.key!r} must be fields made by {made}, with valid defaults ({error})"
    for name, bound in bounds.items():
        if MARKUP.search(bound.label) or any(MARKUP.search(one.replace("_", "")) for one in bound.choices):
            return f"label and choices of {method.key}.{name} must be plain words, without signs of Markdown"
        if "$" in bound.symbol:
            return f"the symbol of {method.key}.{name} must be LaTeX without dollar signs"
    return ""


def _find_failing_fact(method: Method) -> str:
    """Why a function that describes the method fails at its defaults, which pages call; empty if none does."""
    from merging.base.numerics.flops import LinearMap

    params, matrix = method.params(), LinearMap(2, 4, 4)
    calls: dict[str, Callable[[], Any]] = {
        "needs_when": lambda: method.needs_for(params),
        "survey_when": lambda: method.surveys(params),
        "elementwise": lambda: method.is_elementwise(params),
        "algebra": lambda: float(method.algebra(params, matrix)),
        "refuses": lambda: method.refuses(params, ()),
        "starts_from": lambda: method.starts_from(params),
        "learn_reads": lambda: int(method.learn_reads(params, 2)),
        "count_images_processed": lambda: int(method.count_images_processed(params, [4, 4])),
    }
    for name, call in calls.items():
        try:
            value = call()
        except Exception as error:
            return f"{name} of {method.key!r} fails at its defaults with {type(error).__name__}: {error}"
        if name == "refuses" and value:
            return f"{method.key!r} refuses its own defaults: {value}"
    return ""


def add_method(method: Method, origin: Origin | None) -> None:
    """Register a method that comes from ``origin``, in place of one with its role and key."""
    method.params.owner = method.key if method.params is not NoParams else ""
    REGISTERED[method.role, method.key] = method
    if origin is not None:
        ORIGINS[method.role, method.key] = origin


def remove_method(method: Method) -> None:
    """Take back a registration, if it is of this very method."""
    if REGISTERED.get((method.role, method.key)) is method:
        del REGISTERED[method.role, method.key]
        ORIGINS.pop((method.role, method.key), None)


@contextmanager
def collect_methods() -> Iterator[list[tuple[Method, int]]]:
    """Collects the methods that others register meanwhile, with the lines of the calls, instead of registering them."""
    collected: list[tuple[Method, int]] = []
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)

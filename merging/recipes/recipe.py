"""A recipe: which checkpoints, which chain of edits, which merge. Written as YAML, named by its digest."""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from merging.checkpoints.families import ACTIVATIONS, Parameter
from merging.checkpoints.stated_architecture import StatedArchitecture
from merging.errors import CheckpointError, MergingError, RecipeError
from merging.files.plain_yaml import check_fields, plain_yaml, text_of, write_yaml
from merging.files.short_digest import short_digest
from merging.methods import registry
from merging.methods.method import Edit, Merge, Method, Needs
from merging.methods.params import TABLE, Params, integer

VERSION = 1
FIELDS = (
    "version", "title", "pretrained", "experts", "exemplars", "count_dead_params", "activation", "architecture",
    "edits", "merge",
)  # fmt: skip
DEFAULT_MERGE = "task_arithmetic"  # what ``merging.merge`` takes where no merge is named
NEEDS_EXEMPLARS = {Needs.EXEMPLARS, Needs.LABELED_EXEMPLARS}
EditSpec = str | tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Exemplars(Params):
    """How many training images a chain that needs exemplars may see, and which."""

    per_task: int = integer(
        64, low=1, high=100_000, slider=(1, 64), label="Exemplars per task", help="Training images that methods see."
    )
    seed: int = integer(0, low=0, slider=(0, 100), label="Exemplar seed", help="Which training images are drawn.")


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a chain: a method's key and its complete, checked parameters."""

    key: str
    params: Params

    def plain(self) -> dict[str, dict[str, Any]]:
        """{key: {parameter: value}}, defaults written out."""
        return {self.key: self.params.plain()}

    def text(self) -> str:
        """'ties(density=0.2)': the key with the parameters that differ from their defaults; a table goes unnamed."""
        bounds = self.params.bounds()
        changed = [
            f"{'' if bounds[n].kind == TABLE else f'{n}='}{bounds[n].brief(v)}"
            for n, v in self.params.values().items()
            if v != bounds[n].default
        ]
        return f"{self.key}({', '.join(changed)})" if changed else self.key


@dataclass(frozen=True)
class Recipe:
    """References to checkpoints, any number of edits, then one merge. ``title`` is for people and not in the digest.

    With ``count_dead_params``, global quantiles count the unused text tensors that published image encoders carry, as
    their authors' code does; it changes nothing where a checkpoint carries none. It is off unless a recipe turns it on,
    as the papers' presets do. ``activation`` is that of all the models, for files that do not state it or state it
    wrongly; exemplars and evaluations run with it. ``architecture`` is what no file states, as
    'heads=12,activation=gelu'; a file that states something else is refused.
    """

    pretrained: str
    experts: tuple[tuple[str, str], ...]  # (expert name, reference), in order
    edits: tuple[Step, ...]
    merge: Step
    title: str = ""
    exemplars: Exemplars | None = None  # None for chains that need none
    count_dead_params: bool = False
    activation: str = ""  # one of ACTIVATIONS; empty: as the files state
    architecture: str = ""  # as StatedArchitecture writes it

    @classmethod
    def build(
        cls,
        merge: str,
        params: Mapping[str, Any] | None = None,
        edits: Sequence[EditSpec] = (),
        pretrained: str = "memory",
        experts: Mapping[str, str] | None = None,
        title: str = "",
        exemplars: Mapping[str, Any] | None = None,
        count_dead_params: bool = False,
        activation: str = "",
        architecture: str = "",
    ) -> Self:
        """A checked recipe.

        Raises:
            UnknownMethodError, ParameterError: with the nearest known name, or the admitted range.
            RecipeError: the chain makes no sense; says why.
        """
        merge_method = registry.merge(merge)
        steps = tuple(_edit_step(spec) for spec in edits)
        pairs = tuple((experts or {}).items())
        if not isinstance(count_dead_params, bool):
            raise RecipeError(f"In a recipe, count_dead_params is true or false; got {_short(count_dead_params)}.")
        if activation not in ("", *ACTIVATIONS):
            raise RecipeError(f"In a recipe, activation is {' or '.join(ACTIVATIONS)}; got {_short(activation)}.")
        architecture = _stated(architecture, activation)
        merge_step = Step(merge_method.key, merge_method.params.build(params or {}, merge_method.key))
        _refuse_meaningless((*steps, merge_step), (*(registry.edit(step.key) for step in steps), merge_method))
        recipe = cls(pretrained, pairs, steps, merge_step, title, None, count_dead_params, activation, architecture)
        return replace(recipe, exemplars=Exemplars.build(exemplars or {})) if recipe.needs & NEEDS_EXEMPLARS else recipe

    def stating(self, activation: str = "", architecture: str = "") -> Self:
        """The recipe with another activation or architecture, where one is given.

        Raises:
            RecipeError: they name two activations.
        """
        named, given = activation or self.activation, architecture or self.architecture
        return replace(self, activation=named, architecture=_stated(given, named))

    @classmethod
    def of_method(cls, method: Method, pretrained: str = "memory", experts: Mapping[str, str] | None = None) -> Self:
        """The shortest chain with a method at its defaults: a merge alone, an edit before ``DEFAULT_MERGE``."""
        if isinstance(method, Edit):
            return cls.build(DEFAULT_MERGE, {}, [method.key], pretrained, experts, method.title)
        return cls.build(method.key, {}, [], pretrained, experts, method.title)

    @property
    def methods(self) -> tuple[Edit | Merge, ...]:
        """The registered methods of the chain, in order."""
        return (*(registry.edit(step.key) for step in self.edits), registry.merge(self.merge.key))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The chain: the edits, then the merge."""
        return (*self.edits, self.merge)

    @property
    def per_task(self) -> bool:
        """Whether the recipe gives one model for each expert, instead of one for all."""
        last = self.methods[-1]
        return isinstance(last, Merge) and last.per_task

    @property
    def data_methods(self) -> tuple[tuple[Edit | Merge, Needs], ...]:
        """The methods that need data with their parameters in this chain, and what each needs."""
        pairs = zip(self.methods, self.steps, strict=True)
        needs = [(method, method.needed(step.params)) for method, step in pairs]
        return tuple((method, need) for method, need in needs if need != Needs.NOTHING)

    @property
    def needs(self) -> frozenset[Needs]:
        """What the chain must be given besides checkpoints."""
        return frozenset(need for _, need in self.data_methods)

    def text(self) -> str:
        """The chain in one line: 'lwptv → ties(density=0.1)'."""
        return " → ".join(step.text() for step in self.steps)

    @cached_property
    def chain_digest(self) -> str:
        """sha-256 of the chain with every parameter and every method's version; references are left out."""
        return self._digest([step.plain() for step in self.steps])

    def _digest(self, steps: Sequence[Mapping[str, Any]]) -> str:
        versions = [method.version for method in self.methods]
        exemplars = [self.exemplars.values()] if self.exemplars else []
        return hashlib.sha256(_canonical([VERSION, steps, versions, *exemplars]).encode()).hexdigest()

    def contents(self, parameters: Sequence[Parameter]) -> Iterator[dict[str, Any]]:
        """Every step by its parameters, or by what it does to these tensors if it can be written in several ways.

        Raises:
            ParameterError: a step names tensors or experts that do not exist.
        """
        names = [name for name, _ in self.experts]
        for method, step in zip(self.methods, self.steps, strict=True):
            yield {step.key: method.content(step.params, names, parameters)} if method.content else step.plain()

    def run_id(
        self,
        pretrained_digest: str,
        expert_digests: Mapping[str, str],
        benchmark_digest: str = "",
        carries_dead: bool = False,
        parameters: Sequence[Parameter] = (),
    ) -> str:
        """The id of the run: a digest of the chain and the contents of its inputs, as twelve hexadecimal digits.

        The paths of the files, the recipe's title and the device do not enter; the benchmark does only where exemplars
        are drawn from it, counting dead parameters only where the pretrained model carries some, and an activation only
        where one is named, as does an architecture. Steps that can be written in several ways enter by what they do to
        the tensors, which are ``parameters``.
        """
        inputs = [pretrained_digest, [[name, expert_digests[name]] for name, _ in self.experts]]
        drawn_from = [benchmark_digest] if self.exemplars else []
        dead = ["count_dead_params"] if self.count_dead_params and carries_dead else []
        chain = self._digest(list(self.contents(parameters)))
        named = [self.activation] if self.activation else []
        named += [f"architecture {self.architecture}"] if self.architecture else []
        return short_digest(_canonical([chain, inputs, *drawn_from, *dead, *named]))

    def plain(self) -> dict[str, Any]:
        """The recipe as plain data, defaults written out."""
        return {
            "version": VERSION,
            **({"title": self.title} if self.title else {}),
            "pretrained": self.pretrained,
            "experts": dict(self.experts),
            **({"exemplars": self.exemplars.values()} if self.exemplars else {}),
            "count_dead_params": self.count_dead_params,
            **({"activation": self.activation} if self.activation else {}),
            **({"architecture": self.architecture} if self.architecture else {}),
            "edits": [step.plain() for step in self.edits],
            "merge": self.merge.plain(),
        }

    def to_yaml(self) -> str:
        """The recipe as a YAML document that ``from_yaml`` reads back to an equal one."""
        return write_yaml(self.plain())

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """A recipe from YAML.

        Raises:
            RecipeError: not YAML, or a field is missing, unknown or of the wrong shape; says which.
        """
        return cls.from_plain(plain_yaml(text))

    @classmethod
    def from_plain(cls, data: Any) -> Self:
        """A recipe from plain data, as ``plain`` writes it."""
        data = check_fields(data, "recipe", FIELDS, VERSION)
        merge, params = _keyed(data.get("merge"), "merge")
        edits = data.get("edits") or []
        experts, exemplars = data.get("experts") or {}, data.get("exemplars") or {}
        if not isinstance(edits, list) or not isinstance(experts, dict) or not isinstance(exemplars, dict):
            raise RecipeError(
                "In a recipe, edits is a list, experts a mapping of name to file, exemplars a mapping of settings."
            )
        return cls.build(
            merge=merge,
            params=params,
            edits=[_keyed(entry, "edits") for entry in edits],
            pretrained=text_of(data.get("pretrained", ""), "pretrained"),
            experts={text_of(n, "an expert's name"): text_of(r, "an expert's file") for n, r in experts.items()},
            title=text_of(data.get("title", ""), "title"),
            exemplars=exemplars,
            count_dead_params=data.get("count_dead_params", False),
            activation=data.get("activation", ""),
            architecture=data.get("architecture", ""),
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """A recipe from a file; errors name the file."""
        try:
            return cls.from_yaml(path.read_text("utf-8"))
        except UnicodeDecodeError:
            raise RecipeError(f"{path.name} cannot be read as a recipe: it is no text.") from None
        except OSError as error:
            raise RecipeError(f"{path.name} cannot be read as a recipe: {error.strerror}.") from None
        except MergingError as error:
            raise type(error)(f"{path.name}: {error}") from None


def _edit_step(spec: EditSpec) -> Step:
    if isinstance(spec, str):
        spec = (spec, {})
    if len(spec) != 2 or not isinstance(spec[0], str) or not isinstance(spec[1], Mapping):
        raise RecipeError(f"An edit is a key, or a key and its parameters; got {_short(spec)}.")
    key, params = spec
    method = registry.edit(key)
    return Step(method.key, method.params.build(params, method.key))


def _stated(architecture: Any, activation: str) -> str:
    """An architecture in plain fields, checked. Raises RecipeError if it is none, or names another activation."""
    if not isinstance(architecture, str):
        raise RecipeError(f"In a recipe, architecture is a text such as heads=12; got {_short(architecture)}.")
    try:
        given = StatedArchitecture.parse(architecture)
    except CheckpointError as error:
        raise RecipeError(f"In a recipe: {error}") from None
    if given.activation and activation not in ("", given.activation):
        raise RecipeError(f"The activation is {activation}, in the architecture {given.activation}; name one of them.")
    return given.text()


def _refuse_meaningless(steps: Sequence[Step], methods: Sequence[Method]) -> None:
    """Raise RecipeError for a chain whose result would not mean what it says."""
    for i, (step, method) in enumerate(zip(steps, methods, strict=True)):
        if reason := method.refuses(step.params, [(before.key, before.params) for before in steps[:i]]):
            raise RecipeError(reason)
    after = [
        i
        for i, (s, m) in enumerate(zip(steps, methods, strict=True))
        if isinstance(m, Edit) and m.after_merge(s.params)
    ]
    if len(after) > 1:
        raise RecipeError("Two edits of this chain work on the merged task vector; at most one can. Join their rules.")
    if after and after[0] != len(steps) - 2:
        raise RecipeError(
            f"{steps[after[0]].key} works on the merged task vector here, so it is the last edit; move it to the end."
        )


def _short(value: Any) -> str:
    """A value for an error text, never longer than a line."""
    return reprlib.repr(value)


def _keyed(entry: Any, field: str) -> tuple[str, dict[str, Any]]:
    """('ties', {...}) from 'ties' or {'ties': {...}}."""
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, dict) and len(entry) == 1:
        ((key, params),) = entry.items()
        if isinstance(key, str) and (params is None or isinstance(params, dict)):
            return key, params or {}
    raise RecipeError(f"In a recipe, {field} is written as `ties` or as `ties: {{density: 0.2}}`; got {_short(entry)}.")


def _canonical(data: Any) -> str:
    """Plain data as JSON, the same text for the same data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)

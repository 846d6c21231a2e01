"""A recipe while it is being built: unlike a Recipe it may be wrong, and its steps keep their identity when moved."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from merging.checkpoints.families import ACTIVATIONS
from merging.errors import ParameterError, RecipeError
from merging.methods import registry
from merging.methods.method import Edit, Merge, Needs
from merging.methods.params import Params
from merging.recipes.chain_text import parse_step
from merging.recipes.recipe import NEEDS_EXEMPLARS, Exemplars, Recipe, Step

EXEMPLARS = "exemplars"  # name of the step of a link that says how exemplars are drawn
COUNT_DEAD = "count_dead_params"  # comes first in a link whose quantiles count unused text tensors
ACTIVATION = "activation:"  # comes next in a link that names the activation of the models
_number = count()


@dataclass
class DraftStep:
    """One step: a method's key and the values chosen for it. ``uid`` names its widgets."""

    key: str
    values: dict[str, Any] = field(default_factory=dict)
    uid: int = field(default_factory=lambda: next(_number))

    @classmethod
    def of(cls, step: Step) -> Self:
        """A step with the method and values of a recipe's step."""
        return cls(step.key, step.params.values())

    def text(self) -> str:
        """The step as links write it, without default values: 'ties:density=0.2,scaling=0.3'."""
        bounds = self._bounds()
        pairs = [f"{n}={_plain(v)}" for n, v in self.values.items() if n in bounds and v != bounds[n].default]
        return self.key + (":" + ",".join(pairs) if pairs else "")

    def _bounds(self) -> Mapping[str, Any]:
        params: dict[str, type[Params]] = {method.key: method.params for method in registry.methods()}
        return (params | {EXEMPLARS: Exemplars})[self.key].bounds()


def _plain(value: Any) -> str:
    """The value as text that reads back as exactly the same value: another number would be another run."""
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return "none" if value is None else str(value).lower()


@dataclass
class Draft:
    """The chosen checkpoints (experts by name) and the chain."""

    pretrained: str
    experts: list[str]
    edits: list[DraftStep]
    merge: DraftStep
    title: str = ""
    titled: str = ""  # the chain that ``title`` names
    exemplars: dict[str, Any] = field(default_factory=dict)  # how they are drawn, for chains that need them
    count_dead_params: bool = False
    activation: str = ""

    @classmethod
    def of(cls, recipe: Recipe) -> Self:
        """A draft that starts from a recipe."""
        names = [name for name, _ in recipe.experts]
        draft = cls(
            recipe.pretrained, names, [*map(DraftStep.of, recipe.edits)], DraftStep.of(recipe.merge), recipe.title
        )
        draft.exemplars = recipe.exemplars.values() if recipe.exemplars else {}
        draft.count_dead_params, draft.activation = recipe.count_dead_params, recipe.activation
        draft.titled = draft.chain()
        return draft

    def chain(self) -> str:
        """The chain in one line, as links and the command line write it: 'lwptv;ties:density=0.1'."""
        exemplars = DraftStep(EXEMPLARS, self.exemplars).text() if self.needs_exemplars else EXEMPLARS
        steps = [step.text() for step in (*self.edits, self.merge)]
        settings = [COUNT_DEAD] if self.count_dead_params else []
        settings += [ACTIVATION + self.activation] if self.activation else []
        return ";".join([*settings, *steps] if exemplars == EXEMPLARS else [*settings, exemplars, *steps])

    @property
    def needs(self) -> frozenset[Needs]:
        """What the chain needs besides checkpoints."""
        edits = [(step, registry.edit(step.key)) for step in self.edits]
        return frozenset(_needed(*pair) for pair in (*edits, (self.merge, registry.merge(self.merge.key))))

    @property
    def needs_exemplars(self) -> bool:
        """Whether a method of the chain needs exemplars."""
        return bool(self.needs & NEEDS_EXEMPLARS)

    def recipe(self, references: Mapping[str, str]) -> Recipe:
        """The checked recipe; ``references`` says where each expert is.

        Raises:
            MergingError: a value outside its bounds, an unknown method, no expert.
        """
        if not self.experts:
            raise RecipeError("Choose at least one expert.")
        return Recipe.build(
            merge=self.merge.key,
            params=self.merge.values,
            edits=[(step.key, step.values) for step in self.edits],
            pretrained=self.pretrained,
            experts={name: references[name] for name in self.experts},
            exemplars=self.exemplars,
            count_dead_params=self.count_dead_params,
            activation=self.activation,
            title=self.title if self.chain() == self.titled else "",
        )

    def move(self, uid: int, by: int) -> None:
        """Move an edit up (-1) or down (+1) the chain."""
        place = next(i for i, step in enumerate(self.edits) if step.uid == uid)
        other = place + by
        if 0 <= other < len(self.edits):
            self.edits[place], self.edits[other] = self.edits[other], self.edits[place]

    def remove(self, uid: int) -> None:
        """Take an edit out of the chain."""
        self.edits = [step for step in self.edits if step.uid != uid]


def _needed(step: DraftStep, method: Edit | Merge) -> Needs:
    """What a step needs with its values; what it needs by default if a value is out of bounds."""
    try:
        return method.needed(method.params.build(step.values))
    except ParameterError:
        return method.needs


def parse_chain(text: str, pretrained: str, experts: list[str]) -> Draft:
    """The draft of a chain in the form that ``Draft.chain`` writes.

    Raises:
        MergingError: an unknown method or parameter, or a value outside its bounds.
    """
    problems: list[str] = []
    dead, activation, (exemplars_text, *rest) = _settings(text)
    if exemplars_text.partition(":")[0] != EXEMPLARS:
        exemplars_text, rest = "", [exemplars_text, *rest]
    if not rest:
        raise RecipeError("The chain has no merge.")
    exemplars = parse_values(Exemplars, exemplars_text.partition(":")[2])
    steps = [parse_step("edit", edit, problems) for edit in rest[:-1]]
    merge = parse_step("merge", rest[-1], problems)
    if problems:
        raise RecipeError(" ".join(problems))
    edits = [DraftStep(key, registry.edit(key).params.build(values).values()) for key, values in steps]
    last = DraftStep(merge[0], registry.merge(merge[0]).params.build(merge[1]).values())
    return Draft(pretrained, experts, edits, last, exemplars=exemplars, count_dead_params=dead, activation=activation)


def _settings(text: str) -> tuple[bool, str, list[str]]:
    """Whether a link counts unused tensors, the activation that it names, and the steps."""
    dead = text.startswith(f"{COUNT_DEAD};")
    text = text.removeprefix(f"{COUNT_DEAD};")
    if not text.startswith(ACTIVATION):
        return dead, "", text.split(";")
    activation, _, text = text.removeprefix(ACTIVATION).partition(";")
    if activation not in ACTIVATIONS:
        raise RecipeError(f"An activation is {' or '.join(ACTIVATIONS)}; got {activation[:20]!r}.")
    return dead, activation, text.split(";")


def parse_values(kind: type[Params], text: str) -> dict[str, Any]:
    """The checked values in 'name=value,name=value', with the defaults of the others."""
    bounds = kind.bounds()
    values: dict[str, Any] = {}
    for name, _, word in (pair.partition("=") for pair in text.split(",") if pair):
        try:
            values[name] = bounds[name].parse(word) if name in bounds else word
        except ValueError:
            values[name] = word  # the check below says what is wrong
    return kind.build(values).values()


def in_order(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names that ``known`` has, in its order; a merge must not depend on the order of clicks."""
    chosen = set(names)
    return [name for name in known if name in chosen]


def command(recipe: Recipe) -> str:
    """The command lines that compute the same: from the recipe's file, and without a file if options suffice."""
    run = "python -m merging run recipe.yaml"
    if recipe.exemplars and recipe.exemplars != type(recipe.exemplars)():
        return run
    words = ["python", "-m", "merging", "merge", "--pretrained", recipe.pretrained]
    words += [word for name, reference in recipe.experts for word in ("--expert", f"{name}={reference}")]
    words += [word for step in map(DraftStep.of, recipe.edits) for word in ("--edit", step.text())]
    words += ["--count-dead-params"] if recipe.count_dead_params else []
    words += ["--activation", recipe.activation] if recipe.activation else []
    whole = shlex.join([*words, "--merge", DraftStep.of(recipe.merge).text(), "--out", "merged.safetensors"])
    return f"{run}\n\n# or, without the file\n{whole}"

"""A recipe while it is being built: unlike a Recipe it may be wrong, and its steps keep their identity when moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from merging import registry
from merging.errors import RecipeError
from merging.recipe import Recipe, Step
from merging.specs import parse_step

_number = count()


@dataclass
class Stage:
    """One step: a method's key and the values chosen for it. ``uid`` names its widgets."""

    key: str
    values: dict[str, Any] = field(default_factory=dict)
    uid: int = field(default_factory=lambda: next(_number))

    @classmethod
    def of(cls, step: Step) -> Self:
        """A stage that starts from a recipe's step."""
        return cls(step.key, step.params.values())

    def text(self) -> str:
        """'ties:density=0.2,scaling=0.3' with the values that are not defaults."""
        bounds = self._bounds()
        shown = [f"{n}={_plain(v)}" for n, v in self.values.items() if n in bounds and v != bounds[n].default]
        return self.key + (":" + ",".join(shown) if shown else "")

    def _bounds(self) -> Mapping[str, Any]:
        known = {method.key: method for method in registry.methods()}
        return known[self.key].params.bounds() if self.key in known else {}


def _plain(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value).lower()


@dataclass
class Draft:
    """The chosen checkpoints (experts by name) and the chain."""

    pretrained: str
    experts: list[str]
    edits: list[Stage]
    merge: Stage
    title: str = ""
    titled: str = ""  # the chain that ``title`` is the name of

    @classmethod
    def of(cls, recipe: Recipe) -> Self:
        """A draft that starts from a recipe."""
        names = [name for name, _ in recipe.experts]
        found = cls(recipe.pretrained, names, [*map(Stage.of, recipe.edits)], Stage.of(recipe.merge), recipe.title)
        found.titled = found.chain()
        return found

    def chain(self) -> str:
        """The chain in one line, as links and the command line write it: 'lwptv;ties:density=0.1'."""
        return ";".join(stage.text() for stage in (*self.edits, self.merge))

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
            edits=[(stage.key, stage.values) for stage in self.edits],
            pretrained=self.pretrained,
            experts={name: references[name] for name in self.experts},
            title=self.title if self.chain() == self.titled else "",
        )

    def move(self, uid: int, by: int) -> None:
        """Move an edit up (-1) or down (+1) the chain."""
        place = next(i for i, stage in enumerate(self.edits) if stage.uid == uid)
        other = place + by
        if 0 <= other < len(self.edits):
            self.edits[place], self.edits[other] = self.edits[other], self.edits[place]

    def remove(self, uid: int) -> None:
        """Take an edit out of the chain."""
        self.edits = [stage for stage in self.edits if stage.uid != uid]


def parse_chain(text: str) -> tuple[list[Stage], Stage]:
    """The stages that ``Draft.chain`` wrote; the last one is the merge.

    Raises:
        MergingError: an unknown method or parameter, or a value outside its bounds.
    """
    problems: list[str] = []
    *edits, last = text.split(";")
    steps = [parse_step("edit", edit, problems) for edit in edits]
    merge = parse_step("merge", last, problems)
    if problems:
        raise RecipeError(" ".join(problems))
    stages = [Stage(key, registry.edit(key).params.build(values).values()) for key, values in steps]
    return stages, Stage(merge[0], registry.merge(merge[0]).params.build(merge[1]).values())


def in_order(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names that are known, in the order of ``known``; a merge must not depend on the order of clicks."""
    chosen = set(names)
    return [name for name in known if name in chosen]

"""A recipe under construction: unlike a Recipe it may be invalid, and its steps keep their identity when moved."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from merging.base.errors import ParameterError, RecipeError
from merging.methods import registry
from merging.methods.method import Method, Needs
from merging.models.team.vocabulary_choices import COMMON
from merging.recipes import chain_text
from merging.recipes.chain_text import WrittenChain, step_text
from merging.recipes.data_files import DataFiles
from merging.recipes.recipe import NEEDS_EXEMPLARS, Recipe, TestData
from merging.recipes.step import Step

_uids = count()


@dataclass
class DraftStep:
    """One step: a method's key and the chosen values. ``uid`` is part of its widgets' keys."""

    key: str
    values: dict[str, Any] = field(default_factory=dict)
    uid: int = field(default_factory=lambda: next(_uids))

    @classmethod
    def from_step(cls, step: Step) -> Self:
        """A step with the method and values of a recipe's step."""
        return cls(step.key, step.params.values())

    def is_after_merge(self) -> bool:
        """Whether the step edits the merged task vector. Raises ParameterError for invalid values."""
        method = registry.find_edit(self.key)
        return bool(method.after_merge(method.params.build(self.values)))


@dataclass
class Draft:
    """The chosen checkpoints (experts by name) and the chain."""

    pretrained: str
    experts: list[str]
    edits: list[DraftStep]
    merge: DraftStep
    title: str = ""
    title_of_chain: str = ""  # the chain for which ``title`` is valid
    exemplars: dict[str, Any] = field(default_factory=dict)  # their sampling, for chains that need exemplars
    count_dead_params: bool = False  # whether quantiles count the tensors of a text encoder, which no merge uses
    activation: str = ""  # this and the next: empty, as the files state
    architecture: str = ""
    vocabulary: str = COMMON  # how tables with a row per token merge if models differ in their tokens
    family: str = ""  # the kind of network to read the files as; empty: the recognized one
    adapt: DraftStep | None = None
    test_data: dict[str, Any] = field(default_factory=dict)  # the images to learn from, for chains that need them
    data_files: DataFiles = field(default_factory=DataFiles)  # files of data from an opened recipe file

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> Self:
        """A draft that starts from a recipe."""
        names = [name for name, _ in recipe.experts]
        draft = cls(
            recipe.pretrained,
            names,
            [*map(DraftStep.from_step, recipe.edits)],
            DraftStep.from_step(recipe.merge),
            recipe.title,
        )
        draft.exemplars = recipe.exemplars.values() if recipe.exemplars else {}
        draft.count_dead_params = recipe.count_dead_params
        draft.activation = recipe.activation
        draft.architecture = recipe.architecture
        draft.vocabulary = recipe.vocabulary
        draft.family = recipe.family
        draft.adapt = DraftStep.from_step(recipe.adapt) if recipe.adapt else None
        draft.test_data = recipe.test_data.values() if recipe.test_data else {}
        draft.data_files = recipe.data_files
        draft.title_of_chain = draft.chain()
        return draft

    def chain(self) -> str:
        """The chain in one line, as links write it: 'lwptv;ties:density=0.1;surgery:rank=8'."""
        return WrittenChain(
            [(step.key, step.values) for step in self.edits],
            (self.merge.key, self.merge.values),
            self.exemplars if self.needs_exemplars else {},
            self.count_dead_params,
            self.activation,
            self.architecture,
            (self.adapt.key, self.adapt.values) if self.adapt else None,
            self.test_data if self.needs_test_data else {},
        ).text()

    @property
    def chain_needs(self) -> frozenset[Needs]:
        """The needs of the chain besides checkpoints."""
        return frozenset(_needs_of_step(*pair) for pair in self._list_stages())

    def _list_stages(self) -> list[tuple[DraftStep, Method]]:
        stages: list[tuple[DraftStep, Method]] = [(step, registry.find_edit(step.key)) for step in self.edits]
        stages.append((self.merge, registry.find_merge(self.merge.key)))
        return stages + ([(self.adapt, registry.find_adapt(self.adapt.key))] if self.adapt else [])

    @property
    def data_files_read(self) -> tuple[str, ...]:
        """The files of data that steps read for a network without images, by their keys in a recipe."""
        methods = [method for step, method in self._list_stages() if _needs_of_step(step, method) != Needs.NOTHING]
        reads_gradients = any(method.gradients for method in methods)
        reads_inputs = any(method.reads_layer_inputs for method in methods)
        return (*["layer_inputs"] * reads_inputs, *["gradients"] * reads_gradients)

    @property
    def needs_exemplars(self) -> bool:
        """Whether a method of the chain needs exemplars."""
        return bool(self.chain_needs & NEEDS_EXEMPLARS)

    @property
    def needs_test_data(self) -> bool:
        """Whether a method of the chain learns from unlabeled images of the tasks."""
        return Needs.TEST_DATA in self.chain_needs

    def recipe(self, references: Mapping[str, str]) -> Recipe:
        """The checked recipe; ``references`` maps each expert to its checkpoint.

        Raises:
            MergingError: a value outside its bounds, an unknown method, no expert.
        """
        if not self.experts:
            raise RecipeError("Choose at least one expert.")
        return Recipe.build(
            merge=self.merge.key, params=self.merge.values, edits=[(step.key, step.values) for step in self.edits],
            pretrained=self.pretrained, experts={name: references[name] for name in self.experts},
            exemplars=self.exemplars, count_dead_params=self.count_dead_params, activation=self.activation,
            architecture=self.architecture, vocabulary=self.vocabulary, family=self.family,
            title=self.title if self.chain() == self.title_of_chain else "",
            adapt=(self.adapt.key, self.adapt.values) if self.adapt else None, test_data=self.test_data,
            **self.data_files.of_experts(self.experts).to_plain(),
        )  # fmt: skip

    def forget_model_choices(self) -> None:
        """Forget the choices made for the previous models."""
        self.vocabulary = COMMON
        self.family = ""
        self.data_files = DataFiles()

    def move(self, uid: int, offset: int) -> None:
        """Move an edit up (-1) or down (+1) the chain."""
        index = next(i for i, step in enumerate(self.edits) if step.uid == uid)
        target = index + offset
        if 0 <= target < len(self.edits):
            self.edits[index], self.edits[target] = self.edits[target], self.edits[index]

    def remove(self, uid: int) -> None:
        """Remove an edit from the chain."""
        self.edits = [step for step in self.edits if step.uid != uid]


def _needs_of_step(step: DraftStep, method: Method) -> Needs:
    """The needs of a step with its values; with the defaults if a value is out of bounds."""
    try:
        return method.needs_for(method.params.build(step.values))
    except ParameterError:
        return method.needs


def parse_chain(text: str, pretrained: str, experts: list[str]) -> Draft:
    """The draft of a chain in the form that ``Draft.chain`` writes.

    Raises:
        MergingError: an unknown method or parameter, or a value outside its bounds.
    """
    chain = chain_text.parse_chain(text)
    edits = [DraftStep(key, dict(values)) for key, values in chain.edits]
    merge = DraftStep(chain.merge[0], dict(chain.merge[1]))
    return Draft(
        pretrained, experts, edits, merge, exemplars=dict(chain.exemplars),
        count_dead_params=chain.count_dead_params, activation=chain.activation, architecture=chain.architecture,
        adapt=DraftStep(chain.adapt[0], dict(chain.adapt[1])) if chain.adapt else None,
        test_data=dict(chain.test_data),
    )  # fmt: skip


def sort_names(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names in the order of ``known``, without unknown ones: a merge must not depend on the order of clicks."""
    chosen = set(names)
    return [name for name in known if name in chosen]


def command_lines(recipe: Recipe) -> str:
    """The command lines for a recipe: with its file, and without a file if options suffice."""
    run_command = "mergescope run recipe.yaml"
    if recipe.exemplars and recipe.exemplars != type(recipe.exemplars)():
        return run_command
    words = ["mergescope", "merge", "--pretrained", recipe.pretrained]
    words += [word for name, reference in recipe.experts for word in ("--expert", f"{name}={reference}")]
    *edits, merge = map(step_text, recipe.methods, (step.params.values() for step in recipe.steps))
    words += [word for edit in edits for word in ("--edit", edit)]
    if recipe.adapt:
        words += ["--adapt", step_text(registry.find_adapt(recipe.adapt.key), recipe.adapt.params.values())]
    if recipe.test_data and recipe.test_data != TestData():
        words += ["--test-data", _test_data_option(recipe.test_data)]
    words += ["--count-dead-params"] if recipe.count_dead_params else []
    words += ["--activation", recipe.activation] if recipe.activation else []
    words += ["--architecture", recipe.architecture] if recipe.architecture else []
    words += ["--vocabulary", recipe.vocabulary] if recipe.vocabulary != COMMON else []
    words += ["--family", recipe.family] if recipe.family else []
    for key, files in recipe.data_files.to_plain().items():
        words += [word for name, file in files.items() for word in (f"--{key.replace('_', '-')}", f"{name}={file}")]
    output = "merged" if recipe.adapt else "merged.safetensors"  # modules need a folder
    merge_command = shlex.join([*words, "--merge", merge, "--out", output])
    return f"{run_command}\n\n# or, without the file\n{merge_command}"


def _test_data_option(test_data: TestData) -> str:
    """The value of the option for the images to learn from: 'reporting:per_task=128'."""
    bounds = TestData.bounds()
    options = [(name, value) for name, value in test_data.values().items() if name != "split"]
    pairs = [f"{name}={bounds[name].to_text(value)}" for name, value in options if value != bounds[name].default]
    return ":".join([test_data.split, *filter(None, [",".join(pairs)])])

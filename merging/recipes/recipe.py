"""A recipe: references to checkpoints, a chain of edits, a merge and an adapt. Written as YAML, named by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Self

from merging.base.errors import MergingError, RecipeError
from merging.base.files.plain_yaml import check_fields, read_plain_yaml, read_text_field, write_yaml
from merging.base.files.short_digest import short_digest
from merging.methods import registry
from merging.methods.method import Adapt, Edit, Merge, Method, Needs
from merging.methods.params import Params, integer
from merging.models.families import Parameter
from merging.models.formats.model_sources import ModelRef
from merging.models.model_references import PRETRAINED, expert_key
from merging.models.task_checkpoints import flatten_experts, list_tasks, nest_experts
from merging.models.team.vocabulary_choices import COMMON
from merging.recipes import chain_rules
from merging.recipes.data_files import DataFiles
from merging.recipes.step import Step, StepSpec, build_step
from merging.recipes.unlabeled_images import TestData

VERSION = 1
FIELDS = (
    "version", "title", "pretrained", "experts", "exemplars", "test_data", "count_dead_params", "activation",
    "architecture", "family", "vocabulary", "layer_inputs", "gradients", "edits", "merge", "adapt",
)  # fmt: skip
STATED_FIELDS = ("activation", "architecture", "family")  # facts on the models, which plain data omit if empty
DEFAULT_MERGE = "task_arithmetic"  # the default of ``merging.merge``
NEEDS_EXEMPLARS = {Needs.EXEMPLARS, Needs.LABELED_EXEMPLARS}


@dataclass(frozen=True, kw_only=True)
class Exemplars(Params):
    """The number of training images per task for a chain that needs exemplars, and the seed that samples them."""

    per_task: int = integer(
        64, low=1, high=100_000, slider=(1, 64), label="Exemplars per task", help="Training images that methods see."
    )
    seed: int = integer(0, low=0, slider=(0, 100), label="Exemplar seed", help="Which training images are sampled.")


@dataclass(frozen=True)
class Recipe:
    """References to checkpoints, any number of edits, one merge, and at most one adapt on top of the merged model.

    ``title`` is for people and not in the digest. ``exemplars`` and ``test_data`` are set if the chain needs them.

    With ``count_dead_params``, thresholds over all scalars (quantiles) count the text tensors that published image
    encoders hold without using them ("unused" or "dead" tensors), as their authors' code does; it has no effect on
    checkpoints without such tensors. The papers' presets turn it on. ``activation`` holds for all models, for files
    that do not state it or state it wrongly; exemplars and evaluations run with it. ``architecture`` has facts that no
    file states, as 'heads=12,activation=gelu'; a file that states something else is refused. ``family`` replaces the
    recognition of the models: "clip" for the CLIP tower in a larger network, "inferred" to infer the role of every
    tensor (what it does in the network).

    An expert may have several checkpoints, the runs of its task, which ``experts`` has side by side under the names of
    ``merging.models.task_checkpoints``.
    """

    pretrained: str
    experts: tuple[tuple[str, str], ...]  # (expert name, reference), in order
    edits: tuple[Step, ...]
    merge: Step
    title: str = ""
    exemplars: Exemplars | None = None  # None if the chain needs none
    count_dead_params: bool = False
    activation: str = ""  # one of ACTIVATIONS; empty: as the files state
    architecture: str = ""  # in the text form of StatedArchitecture
    adapt: Step | None = None
    test_data: TestData | None = None  # None if the chain needs none
    # One of VOCABULARIES, for tables with a row per token: COMMON merges the rows of tokens that all models have.
    vocabulary: str = COMMON
    data_files: DataFiles = field(default_factory=DataFiles)  # files of data that a step reads
    family: str = ""
    unused: tuple[str, ...] = field(default=(), compare=False)  # sentences on fields of a file that no step needs

    @classmethod
    def build(  # noqa: PLR0913 - a recipe's fields
        cls,
        merge: str,
        params: Mapping[str, Any] | None = None,
        edits: Sequence[StepSpec] = (),
        pretrained: str = "memory",
        experts: Mapping[str, str | Sequence[str]] | None = None,
        title: str = "",
        exemplars: Mapping[str, Any] | None = None,
        count_dead_params: bool = False,
        activation: str = "",
        architecture: str = "",
        *,
        adapt: StepSpec | None = None,
        test_data: Mapping[str, Any] | None = None,
        vocabulary: str = COMMON,
        layer_inputs: Mapping[str, str] | None = None,
        gradients: Mapping[str, str] | None = None,
        family: str = "",
    ) -> Self:
        """A checked recipe.

        Raises:
            UnknownMethodError, ParameterError: names the nearest known name, or the admitted range.
            RecipeError: the chain is meaningless, or there are too many experts for it; names the reason.
        """
        merge_method = registry.find_merge(merge)
        steps = tuple(build_step("edit", spec) for spec in edits)
        pairs = tuple(flatten_experts(experts or {}).items())
        chain_rules.check_settings(count_dead_params, activation, vocabulary)
        architecture = chain_rules.check_architecture(architecture, activation)
        merge_step = Step(merge_method.key, merge_method.params.build(params or {}, merge_method.key))
        chain_rules.refuse_several_adapts(adapt)
        adapt_step = None if adapt is None else build_step("adapt", adapt)
        recipe = cls(pretrained, pairs, steps, merge_step, title, None, count_dead_params, activation, architecture,
                     adapt_step, vocabulary=vocabulary, family=chain_rules.checked_family(family))  # fmt: skip
        stages = [(method, step.params) for method, step in recipe.stages]
        chain_rules.refuse_meaningless(stages)
        chain_rules.refuse_several_checkpoints(stages, [name for name, _ in pairs])
        chain_rules.refuse_too_many(recipe.methods, len(pairs))
        recipe = replace(recipe, data_files=DataFiles.build(layer_inputs, gradients).select_read(recipe.data_methods))
        if recipe.needs & NEEDS_EXEMPLARS:
            recipe = replace(recipe, exemplars=Exemplars.build(exemplars or {}))
        if Needs.TEST_DATA in recipe.needs:
            recipe = replace(recipe, test_data=TestData.build(test_data or {}))
        return recipe

    def with_architecture(self, activation: str = "", architecture: str = "") -> Self:
        """The recipe with another activation or architecture; an empty argument changes nothing.

        Raises:
            RecipeError: they name two activations.
        """
        activation, architecture = activation or self.activation, architecture or self.architecture
        checked = chain_rules.check_architecture(architecture, activation)
        return replace(self, activation=activation, architecture=checked)

    def with_data(self, data_files: Mapping[str, Mapping[str, str]]) -> Self:
        """The recipe with other files of data, {key: {expert: absolute file}}; keys without files change nothing.

        Raises:
            RecipeError: no step reads them.
        """
        if not any(data_files.values()):
            return self
        changed = self.from_plain(self.to_plain() | {key: dict(files) for key, files in data_files.items() if files})
        changed.refuse_unread(data_files)
        return replace(changed, unused=self.unused)

    def refuse_unread(self, data_files: Mapping[str, Mapping[str, str]]) -> None:
        """Raise RecipeError if no step of the chain reads one of these files of data."""
        for key, files in data_files.items():
            if files and key not in self.data_files.to_plain():
                raise RecipeError(f"No step of this chain reads {key.replace('_', ' ')}; leave them out.")

    def refuse_elsewhere(self) -> None:
        """Raise RecipeError if another process cannot compute the recipe, because a notebook registered a method."""
        chain_rules.refuse_elsewhere([method for method, _ in self.stages])

    @classmethod
    def from_method(cls, method: Method, pretrained: str = "memory", experts: Mapping[str, str] | None = None) -> Self:
        """The shortest chain with a method at its defaults: a merge alone, or the method with ``DEFAULT_MERGE``.

        Of ``experts``, it has the first if the method merges only so many.
        """
        experts = dict(islice((experts or {}).items(), method.max_experts))
        merge = method.key if isinstance(method, Merge) else DEFAULT_MERGE
        edits, adapt = ([method.key] if isinstance(method, Edit) else []), isinstance(method, Adapt)
        return cls.build(merge, {}, edits, pretrained, experts, method.title, adapt=method.key if adapt else None)

    def models(self, base: Path | None = None) -> dict[str, ModelRef]:
        """The recipe's models, {"pretrained": model, "experts/<name>": model}; paths are relative to ``base``."""
        references = {PRETRAINED: self.pretrained, **{expert_key(name): text for name, text in self.experts}}
        return {key: ModelRef(text, base) for key, text in references.items()}

    @property
    def tasks(self) -> tuple[str, ...]:
        """The experts by name, each once, however many checkpoints it has."""
        return list_tasks([name for name, _ in self.experts])

    @property
    def methods(self) -> tuple[Edit | Merge, ...]:
        """The registered methods that make the merged model, in order."""
        return (*(registry.find_edit(step.key) for step in self.edits), registry.find_merge(self.merge.key))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that make the merged model: the edits, then the merge."""
        return (*self.edits, self.merge)

    @property
    def stages(self) -> tuple[tuple[Method, Step], ...]:
        """Every method of the chain with its step, in order: edits, merge, and the adapt if there is one."""
        pairs: tuple[tuple[Method, Step], ...] = tuple(zip(self.methods, self.steps, strict=True))
        return pairs if self.adapt is None else (*pairs, (registry.find_adapt(self.adapt.key), self.adapt))

    @property
    def per_task(self) -> bool:
        """Whether the recipe gives one model per expert, instead of one for all."""
        last = self.methods[-1]
        return isinstance(last, Merge) and last.per_task

    @property
    def data_methods(self) -> tuple[tuple[Method, Needs], ...]:
        """The methods that need data, with the parameters that they have in this chain; each with its need."""
        needs = [(method, method.needs_for(step.params)) for method, step in self.stages]
        return tuple((method, need) for method, need in needs if need != Needs.NOTHING)

    @property
    def needs(self) -> frozenset[Needs]:
        """The data that the chain needs besides checkpoints and the files that the recipe names."""
        return frozenset(need for method, need in self.data_methods if not self.data_files.has_data_for(method))

    @property
    def learns(self) -> bool:
        """Whether a method learns on images, step by step; such a run takes long, can pause, and continues later."""
        return any(isinstance(method, Adapt) or method.learns(step.params) for method, step in self.stages)

    @property
    def is_routed(self) -> bool:
        """Whether every image has weights of its own, so that no plain checkpoint can hold the model."""
        return any(isinstance(method, Adapt) and method.routing is not None for method, _ in self.stages)

    @property
    def adapted_on(self) -> str | None:
        """The split whose images the chain learns from: "choosing", "reporting", "exemplars", or None."""
        if self.test_data is not None:
            return self.test_data.split
        return "exemplars" if self.exemplars is not None and self.learns else None

    @property
    def image_needs(self) -> dict[str, bool]:
        """{kind of images: whether a step needs them}."""
        return {"exemplars": self.exemplars is not None, "test_data": self.test_data is not None}

    @property
    def has_sampled_images(self) -> bool:
        """Whether images of a benchmark enter the result: exemplars or test data."""
        return any(self.image_needs.values())

    def text(self) -> str:
        """The chain in one line: 'lwptv → ties(density=0.1) + surgery'."""
        return " → ".join(step.text() for step in self.steps) + (f" + {self.adapt.text()}" if self.adapt else "")

    @cached_property
    def chain_digest(self) -> str:
        """SHA-256 of the chain with every parameter, every method's version and the sources of own methods."""
        return self._digest([step.to_plain() for step in self.steps])

    def _digest(self, steps: Sequence[Mapping[str, Any]]) -> str:
        versions = [method.version for method, _ in self.stages]
        settings: list[Any] = [self.exemplars.values()] if self.exemplars else []
        settings += [{"adapt": self.adapt.to_plain()}] if self.adapt else []
        settings += [{"test_data": self.test_data.values()}] if self.test_data else []
        sources = [[one.role, one.key, one.source_digest] for one, _ in self.stages if one.source_digest]
        settings += [{"sources": sources}] if sources else []
        return hashlib.sha256(chain_rules.canonical_json([VERSION, steps, versions, *settings]).encode()).hexdigest()

    def contents(self, parameters: Sequence[Parameter]) -> Iterator[dict[str, Any]]:
        """Every step as its parameters, or as its effect on these tensors if it can be written in several ways.

        Raises:
            ParameterError: a step names tensors or experts that do not exist.
        """
        names = [name for name, _ in self.experts]
        for method, step in zip(self.methods, self.steps, strict=True):
            yield {step.key: method.content(step.params, names, parameters)} if method.content else step.to_plain()

    def run_id(
        self,
        pretrained_digest: str,
        expert_digests: Mapping[str, str],
        benchmark_digest: str = "",
        carries_dead: bool = False,
        parameters: Sequence[Parameter] = (),
        inference: int = 0,
        data_digests: Mapping[str, str] | None = None,
    ) -> str:
        """The id of the run: a digest of the chain and the contents of its inputs, as twelve hexadecimal digits.

        Paths, the title and the device do not enter the digest. Checkpoints enter in the order of the recipe. The
        benchmark enters if images are sampled from it, and ``count_dead_params`` if the checkpoints have unused tensors
        (``carries_dead``). Further entries are an activation, an architecture, the version of ``inference`` (the rules
        that infer the roles of tensors in networks other than CLIP; 0 for CLIP), the family, the vocabulary and the
        digests of data files, each if there is one. Steps that can be written in several ways enter by their effect on
        the tensors.
        """
        inputs = [pretrained_digest, [[name, expert_digests[name]] for name, _ in self.experts]]
        sampled_from = [benchmark_digest] if self.has_sampled_images else []
        counted = ["count_dead_params"] if self.count_dead_params and carries_dead else []
        # {prefix: value}; the activation stands alone, without a prefix.
        facts = {"": self.activation, "architecture ": self.architecture, "inference ": inference}
        facts |= {
            "family ": self.family,
            "vocabulary ": self.vocabulary if inference and self.vocabulary != COMMON else "",
        }
        facts |= {f"{file} ": digest for file, digest in sorted((data_digests or {}).items())}
        stated = [f"{name}{value}" for name, value in facts.items() if value]
        chain = self._digest(list(self.contents(parameters)))
        return short_digest(chain_rules.canonical_json([chain, inputs, *sampled_from, *counted, *stated]))

    def to_plain(self) -> dict[str, Any]:
        """The recipe as plain data, defaults written out."""
        return {
            "version": VERSION,
            **({"title": self.title} if self.title else {}),
            "pretrained": self.pretrained,
            "experts": nest_experts(dict(self.experts)),
            **({"exemplars": self.exemplars.values()} if self.exemplars else {}),
            **({"test_data": self.test_data.values()} if self.test_data else {}),
            "count_dead_params": self.count_dead_params,
            **{name: value for name in STATED_FIELDS if (value := getattr(self, name))},
            **({"vocabulary": self.vocabulary} if self.vocabulary != COMMON else {}),
            **self.data_files.to_plain(),
            "edits": [step.to_plain() for step in self.edits],
            "merge": self.merge.to_plain(),
            **({"adapt": self.adapt.to_plain()} if self.adapt else {}),
        }

    def to_yaml(self) -> str:
        """The recipe as a YAML document that ``from_yaml`` reads back to an equal one."""
        return write_yaml(self.to_plain())

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """A recipe from YAML.

        Raises:
            RecipeError: not YAML, or a field is missing, unknown or malformed; names the field.
        """
        return cls.from_plain(read_plain_yaml(text))

    @classmethod
    def from_plain(cls, data: Any) -> Self:
        """A recipe from plain data, as ``to_plain`` writes it."""
        if isinstance(data, dict) and "merge_method" in data:
            raise RecipeError("This is a config of mergekit, not a recipe; run `mergescope merge --mergekit FILE`.")
        data = check_fields(data, "recipe", FIELDS, VERSION)
        merge, params = chain_rules.parse_step_entry(data.get("merge"), "merge")
        edits, adapt = data.get("edits") or [], data.get("adapt")
        experts, exemplars, test_data = (data.get(name) or {} for name in ("experts", "exemplars", "test_data"))
        if not isinstance(edits, list) or not all(isinstance(d, dict) for d in (experts, exemplars, test_data)):
            raise RecipeError(
                "In a recipe, edits is a list, experts a mapping, exemplars and test_data mappings of settings."
            )
        chain_rules.refuse_several_adapts(adapt)
        files = DataFiles.build(data.get("layer_inputs"), data.get("gradients"))
        recipe = cls.build(
            merge=merge,
            params=params,
            edits=[chain_rules.parse_step_entry(entry, "edits") for entry in edits],
            pretrained=read_text_field(data.get("pretrained", ""), "pretrained"),
            experts={read_text_field(n, "an expert's name"): _read_checkpoints(r) for n, r in experts.items()},
            title=read_text_field(data.get("title", ""), "title"),
            exemplars=exemplars,
            count_dead_params=data.get("count_dead_params", False),
            **{name: data.get(name, "") for name in STATED_FIELDS},
            adapt=None if adapt is None else chain_rules.parse_step_entry(adapt, "adapt"),
            test_data=test_data,
            vocabulary=data.get("vocabulary", COMMON),
            layer_inputs=dict(files.layer_inputs),
            gradients=dict(files.gradients),
        )
        settings = {"exemplars": exemplars, "test_data": test_data, **files.to_plain()}
        return replace(
            recipe, unused=chain_rules.describe_unused(settings, recipe.image_needs | recipe.data_files.to_plain())
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """A recipe from a file; errors name the file."""
        try:
            return cls.from_yaml(path.read_text("utf-8"))
        except UnicodeDecodeError:
            raise RecipeError(f"{path.name} cannot be read as a recipe: it is not text.") from None
        except OSError as error:
            raise RecipeError(f"{path.name} cannot be read as a recipe: {error.strerror}.") from None
        except MergingError as error:
            raise type(error)(f"{path.name}: {error}") from None


def _read_checkpoints(value: Any) -> str | list[str]:
    """The checkpoint of an expert as text, or the list of its checkpoints."""
    if isinstance(value, list):
        return [read_text_field(reference, "an expert's file") for reference in value]
    return read_text_field(value, "an expert's file")

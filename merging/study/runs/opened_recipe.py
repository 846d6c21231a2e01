"""The opened checkpoints of a recipe, their digests, and the id of the run.

A team is the pretrained model and its experts with their tensors under shared names. Dead parameters are those that no
expert can change: in CLIP the unused text tensors of published files, in a team the tensors that no adapter changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from pathlib import Path

from merging.base.errors import CheckpointError, CompatibilityError
from merging.base.text import printable
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.manifest import check_model
from merging.models.architecture import activation_in_metadata, add_stated_activation, add_stated_architecture
from merging.models.checkpoint import Checkpoint
from merging.models.digest_cache import DIGESTS
from merging.models.formats.model_sources import open_models
from merging.models.head_detection import refuse_head
from merging.models.inspection.fit_check import check_fit
from merging.models.inspection.fit_report import FitReport
from merging.models.model_references import PRETRAINED, expert_key
from merging.models.network_inference import INFERENCE_VERSION
from merging.models.stated_architecture import StatedArchitecture
from merging.models.team.team import TeamBase, form_team
from merging.recipes.recipe import Recipe
from merging.study.runs.captured_files import CapturedFiles
from merging.study.runs.run import Run
from merging.tasks.context import QUIET, Context

MAX_WARNING_CHARACTERS = 2000  # characters of a warning


@dataclass(frozen=True)
class OpenedRecipe:
    """A recipe with its opened checkpoints, and the states of their files when they were opened."""

    recipe: Recipe
    pretrained: Checkpoint
    experts: Mapping[str, Checkpoint]
    states: tuple[tuple[int, ...] | None, ...]  # fingerprints of the files, in the order of iteration
    benchmark: Benchmark | None = None  # the source of exemplars; None is the bundled one
    base: Path | None = None  # the folder to which paths in the recipe are relative; None is the current folder
    captured_files: CapturedFiles = field(default_factory=CapturedFiles)  # of layer inputs and gradients

    def __iter__(self) -> Iterator[Checkpoint]:
        yield self.pretrained
        yield from self.experts.values()

    def with_first_checkpoints(self) -> OpenedRecipe:
        """The same with one checkpoint of each expert, the first of its list, which stands for its task."""
        tasks = set(self.recipe.tasks)
        kept = [name in tasks for name in self.experts]
        if all(kept):
            return self
        recipe = replace(self.recipe, experts=tuple(compress(self.recipe.experts, kept)))
        experts = {name: expert for name, expert in self.experts.items() if name in tasks}
        return replace(self, recipe=recipe, experts=experts, states=tuple(compress(self.states, [True, *kept])))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors of all checkpoints."""
        return sum(info.nbytes for checkpoint in self for info in checkpoint.infos.values())

    @property
    def unread_bytes(self) -> int:
        """Bytes that ``digests`` would have to read: files whose digests this process has not computed yet."""
        unread = [checkpoint for checkpoint in self if not DIGESTS.find(checkpoint.file_fingerprint())]
        return sum(info.nbytes for checkpoint in unread for info in checkpoint.infos.values())

    def digests(self, context: Context = QUIET) -> dict[str, str]:
        """{"pretrained": digest, "experts/<name>": digest}; files that this process has read are not read again.

        Raises:
            TaskError: a model of the user's own benchmark was changed after it was written.
        """
        meter = context.meter(self.nbytes)
        digests = {}
        for (key, model), checkpoint in zip(self.recipe.models(self.base).items(), self, strict=True):
            digests[key] = DIGESTS.digest(checkpoint, meter)
            check_model(model, digests[key])
        return digests

    def run_id(self, digests: Mapping[str, str] | None = None) -> str:
        """The id of the run, which depends on the merged checkpoints and the recipe."""
        digests = digests or self.digests()
        experts = {name: digests[expert_key(name)] for name in self.experts}
        image_digest = (self.benchmark or Benchmark.load()).digest if self.recipe.exemplars else ""
        has_dead, tensors = self.pretrained.unused_text.numel > 0, self.pretrained.parameters
        if isinstance(self.pretrained, TeamBase):
            has_dead = self.pretrained.team.untouched > 0
        # The version of the rules that infer roles and blocks from the tensors of a network other than CLIP.
        inference = INFERENCE_VERSION if self.pretrained.is_inferred else 0
        file_digests = self.captured_files.digests()
        return self.recipe.run_id(
            digests["pretrained"], experts, image_digest, has_dead, tensors, inference, file_digests
        )

    @cached_property
    def _fit_report(self) -> FitReport:
        """The fit report from a sample of the weights; raises CompatibilityError if the structures differ.

        Weights that are not finite raise nothing here: the merge reads all weights and names every such tensor.
        """
        report = check_fit(self.pretrained, self.experts, values=False, sample=True)  # a sample, even of small models
        if any(error.problem != "not finite" for error in report.errors):
            report.raise_if_unfit()
        return report

    @property
    def doubts(self) -> tuple[str, ...]:
        """Sentences about experts that can be merged but probably do not belong to the pretrained model.

        A sample of the weights is read once. Invisible characters in the experts' names are escaped.

        Raises:
            CompatibilityError: the checkpoints cannot be merged.
        """
        return tuple(printable(text, MAX_WARNING_CHARACTERS) for text in self._fit_report.doubt_texts)

    def raise_if_doubtful(self) -> None:
        """Raise CompatibilityError if an expert probably does not belong to the pretrained model."""
        if self.doubts:
            advice = "Nothing was merged. Choose other files, or merge without strict to go on with a warning."
            raise CompatibilityError("\n".join((*self.doubts, advice)), self._fit_report)

    def raise_if_changed(self) -> None:
        """Raise CheckpointError if a file was overwritten after it was opened."""
        for checkpoint, state in zip(self, self.states, strict=True):
            if checkpoint.file_fingerprint() != state:
                raise CheckpointError(
                    f"{checkpoint.name} was changed while it was being read; nothing was stored. Run the recipe again."
                )
        self.captured_files.raise_if_changed()


def open_inputs(recipe: Recipe, base: Path | None = None, benchmark: Benchmark | None = None) -> OpenedRecipe:
    """The checkpoints that a recipe names; its paths are relative to ``base`` (default: the current folder).

    Raises:
        CheckpointError: a file is missing or is not a checkpoint.
    """
    models = recipe.models(base)
    expert_models = {name: models[expert_key(name)] for name, _ in recipe.experts}
    pretrained, experts = open_models(models[PRETRAINED], expert_models, recipe.family)
    files = CapturedFiles.open(recipe, base)
    return replace(attach_checkpoints(recipe, pretrained, experts, benchmark), base=base, captured_files=files)


def attach_checkpoints(
    recipe: Recipe, pretrained: Checkpoint, experts: Mapping[str, Checkpoint], benchmark: Benchmark | None = None
) -> OpenedRecipe:
    """A recipe with open checkpoints, which get the architecture and the activation that the recipe states.

    If neither the recipe nor the pretrained model states an activation, it is that of the experts, if those that state
    one agree.

    Raises:
        CheckpointError: a file is a classification head, or states another architecture than the recipe.
        ParameterError: the recipe names tensors or experts that do not exist.
    """
    stated_architecture = StatedArchitecture.parse(recipe.architecture)
    for checkpoint in (pretrained, *experts.values()):
        refuse_head(checkpoint)
    pretrained = add_stated_architecture(pretrained, stated_architecture)
    experts = {  # sizes=False: the fit check compares their shapes with the pretrained model's
        name: add_stated_architecture(expert, stated_architecture, sizes=False) for name, expert in experts.items()
    }
    if any(method.content for method in recipe.methods):
        list(recipe.contents(pretrained.parameters))  # raises ParameterError if a step names unknown tensors
    activation = recipe.activation
    if not activation and not activation_in_metadata(pretrained):
        activations = {activation_in_metadata(expert) for expert in experts.values()} - {""}
        activation = activations.pop() if len(activations) == 1 else ""
    pretrained = add_stated_activation(pretrained, activation)
    experts = {name: add_stated_activation(expert, activation) for name, expert in experts.items()}
    team = form_team(pretrained, experts, recipe.vocabulary, count_untouched=recipe.count_dead_params)
    states = tuple(checkpoint.file_fingerprint() for checkpoint in (pretrained, *experts.values()))
    return OpenedRecipe(recipe, team.pretrained, team.experts, states, benchmark)


def is_scored(opened: OpenedRecipe, runs: Sequence[Run]) -> bool:
    """Whether a run has all scores that are possible for it, on the benchmark of ``opened`` if it has one.

    ``runs`` are the stored copies of this one run. A copy that could not be scored has a warning with the reason.
    """
    if (benchmark := opened.benchmark) is None:
        return any(run.is_evaluation_done for run in runs)
    if any(run.has_scores and run.benchmark == benchmark.digest for run in runs):
        return True
    return any(run.is_evaluation_done for run in runs) and bool(benchmark.describe_misfit(opened.pretrained))

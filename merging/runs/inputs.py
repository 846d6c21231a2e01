"""The checkpoints of a recipe, opened, with their digests and the id of the run that they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from merging.benchmarks.benchmark import Benchmark
from merging.checkpoints.architecture import stated_activation, with_activation
from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.digests import DIGESTS
from merging.errors import CheckpointError
from merging.formats.opening import open_checkpoint
from merging.progress import Cancel, Meter, ProgressCallback
from merging.recipes.recipe import Recipe
from merging.runs.run import Run


@dataclass(frozen=True)
class OpenedRecipe:
    """A recipe with its checkpoints, as they were when they were opened."""

    recipe: Recipe
    pretrained: Checkpoint
    experts: Mapping[str, Checkpoint]
    states: tuple[tuple[int, ...] | None, ...]
    benchmark: Benchmark | None = None  # where exemplars come from; None is the bundled one

    def __iter__(self) -> Iterator[Checkpoint]:
        yield self.pretrained
        yield from self.experts.values()

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors of all checkpoints."""
        return sum(info.nbytes for checkpoint in self for info in checkpoint.infos.values())

    @property
    def unread(self) -> int:
        """Bytes that ``digests`` would have to read: files whose digest this process does not know yet."""
        new = [checkpoint for checkpoint in self if not DIGESTS.remembered(checkpoint.state())]
        return sum(info.nbytes for checkpoint in new for info in checkpoint.infos.values())

    def digests(self, progress: ProgressCallback | None = None, cancel: Cancel | None = None) -> dict[str, str]:
        """{"pretrained": sha-256, "experts/<name>": sha-256}; files that this process knows are not read again."""
        meter = Meter(self.nbytes, progress, cancel)
        names = ["pretrained", *(f"experts/{name}" for name in self.experts)]
        found = {}
        for name, checkpoint in zip(names, self, strict=True):
            found[name] = DIGESTS.digest(checkpoint, meter)
        return found

    def run_id(self, digests: Mapping[str, str] | None = None) -> str:
        """The id of the run: what is merged, and how."""
        found = digests or self.digests()
        experts = {name: found[f"experts/{name}"] for name in self.experts}
        drawn_from = (self.benchmark or Benchmark.load()).digest if self.recipe.exemplars else ""
        return self.recipe.run_id(found["pretrained"], experts, drawn_from, self.pretrained.dead.numel > 0)

    def raise_if_changed(self) -> None:
        """Raise CheckpointError if a file was overwritten since it was opened."""
        for checkpoint, state in zip(self, self.states, strict=True):
            if checkpoint.state() != state:
                raise CheckpointError(
                    f"{checkpoint.name} was changed while it was being read; nothing was kept. Run the recipe again."
                )


def open_inputs(recipe: Recipe, base: Path | None = None, benchmark: Benchmark | None = None) -> OpenedRecipe:
    """The checkpoints that a recipe refers to; relative paths count from ``base`` (default: here).

    Raises:
        CheckpointError: a file that is not there or not a checkpoint.
    """
    pretrained = open_checkpoint(recipe.pretrained, "pretrained", base)
    experts = {name: open_checkpoint(reference, name, base, like=pretrained) for name, reference in recipe.experts}
    return opened(recipe, pretrained, experts, benchmark)


def opened(
    recipe: Recipe, pretrained: Checkpoint, experts: Mapping[str, Checkpoint], benchmark: Benchmark | None = None
) -> OpenedRecipe:
    """A recipe with checkpoints that are open, which have the activation that it names.

    Where neither it nor the pretrained model names one, the experts do, if all that say something say the same.
    """
    named = recipe.activation
    if not named and not stated_activation(pretrained):
        said = {stated_activation(expert) for expert in experts.values()} - {""}
        named = said.pop() if len(said) == 1 else ""
    pretrained = with_activation(pretrained, named)
    experts = {name: with_activation(expert, named) for name, expert in experts.items()}
    return OpenedRecipe(
        recipe, pretrained, experts, tuple(c.state() for c in (pretrained, *experts.values())), benchmark
    )


def settled(opened: OpenedRecipe, found: Sequence[Run]) -> bool:
    """Whether one of these copies of a run has all the scores that it can have, on the benchmark if one was named."""
    if (on := opened.benchmark) is None:
        return any(run.evaluation_settled for run in found)
    if any(run.has_scores and run.benchmark == on.digest for run in found):
        return True
    return any(run.evaluation_settled for run in found) and bool(on.misfit(opened.pretrained))

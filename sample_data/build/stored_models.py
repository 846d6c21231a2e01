"""The written benchmark as the acceptance checks use it: its files, merges of its models, accuracies, drift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf

import merging
from merging.engine.evaluation.image_features import compute_features, predict
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.models.architecture import Architecture
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from sample_data.build.network import Tower
from sample_data.build.tasks import TASKS

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Recipe:
    """One way to merge: a merge, its parameters, the edits before it, how many exemplars it is shown."""

    title: str
    merge: str
    params: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    exemplars: int = 0

    @property
    def scaling(self) -> float | None:
        """The scaling coefficient as published; None for a merge that has none."""
        return self.params.get("scaling")

    def with_scaling(self, scaling: float) -> Recipe:
        """The same recipe with another scaling coefficient."""
        return replace(self, params={**self.params, "scaling": scaling})


class StoredModels:
    """The models and images of one sample_data folder, through the project's own reading, merging and evaluation."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.benchmark = folder, Benchmark.load(folder)
        self.inside = [task.key for task in TASKS if task.in_domain]
        self.outside = [task.key for task in TASKS if not task.in_domain]
        self._architecture = Architecture.from_checkpoint(open_checkpoint(self.path("pretrained")))
        self._tower = Tower().eval()

    def path(self, name: str) -> str:
        """Where a stored model lies."""
        return str(self.folder / f"models/{name}.safetensors")

    def model(self, name: str) -> dict[str, torch.Tensor]:
        """A stored model in single precision."""
        return {key: value.float() for key, value in open_checkpoint(self.path(name)).state_dict().items()}

    @cached_property
    def pretrained(self) -> dict[str, torch.Tensor]:
        """The model that all task vectors start from."""
        return self.model("pretrained")

    @cached_property
    def experts(self) -> dict[str, dict[str, torch.Tensor]]:
        """The eight experts by task."""
        return {key: self.model(key) for key in self.inside}

    def merge(
        self, recipe: Recipe, experts: Sequence[str] | None = None, *, rounded: bool = True
    ) -> dict[str, torch.Tensor]:
        """The merged model, rounded to half precision as its file is. Raises what `merging` raises."""
        names = list(experts or self.inside)
        read = self.path if rounded else self._in_single_precision
        shown = None
        if recipe.exemplars:
            drawn = self.benchmark.labeled_exemplars(recipe.exemplars)
            shown = {key: drawn[key] for key in names}
        result = merging.merge(
            read("pretrained"),
            {key: read(key) for key in names},
            merge=recipe.merge,
            params=recipe.params,
            edits=recipe.edits,
            exemplars=shown,
            device="cpu",
        )
        return {name: value.float() for name, value in result.state_dict.items()}

    def _in_single_precision(self, name: str) -> MappingCheckpoint:
        """A stored model as a checkpoint in single precision, whose merges are not rounded to half precision."""
        checkpoint = MappingCheckpoint(self.model(name), name)
        checkpoint.metadata = open_checkpoint(self.path(name)).metadata
        return checkpoint

    def merge_at_scalings(self, recipe: Recipe, scalings: Sequence[float]) -> Iterator[dict[str, torch.Tensor]]:
        """The merged model at each scaling from one merge: a scaling is a factor on the merged task vector."""
        whole = self.merge(recipe.with_scaling(1.0), rounded=False)
        for scaling in scalings:
            yield {
                name: (base + scaling * (whole[name] - base)).half().float() for name, base in self.pretrained.items()
            }

    def find_correct(self, weights: Weights, keys: Sequence[str], half: str = "reporting") -> dict[str, np.ndarray]:
        """For each task, which images are classified right (n,) bool."""
        encoder = Encoder(self._architecture, {name.removeprefix("visual."): v for name, v in weights.items()})
        found = {}
        for key in keys:
            images, labels = self.benchmark.load_images(key, half)
            classes = predict(
                compute_features(encoder, self.benchmark.preprocess(images)), self.benchmark.load_head(key)
            )
            found[key] = classes == labels
        return found

    @torch.no_grad()
    def class_tokens(self, weights: Weights, key: str) -> list[torch.Tensor]:
        """The class token after each block, and the final feature, on choosing images [(n, width) ...]."""
        self._tower.load_state_dict({name.removeprefix("visual."): value for name, value in weights.items()})
        seen: list[torch.Tensor] = []
        hooks = [
            block.register_forward_hook(lambda _module, _inputs, out: seen.append(out[:, 0].clone()))
            for block in self._tower.transformer["resblocks"]
        ]
        images, _ = self.benchmark.load_images(key, "choosing")
        seen.append(self._tower(self.benchmark.preprocess(images)))
        for hook in hooks:
            hook.remove()
        return seen


def percent(correct: Mapping[str, np.ndarray], keys: Sequence[str]) -> float:
    """Mean of the tasks' accuracies."""
    return 100 * float(np.mean([correct[key].mean() for key in keys]))


def paired_difference(
    first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray], keys: Sequence[str]
) -> tuple[float, float]:
    """Mean difference of accuracy on the same images and its standard error over images, in points."""
    gaps = [first[key].astype(float) - second[key] for key in keys]
    error = np.sqrt(sum(gap.var(ddof=1) / len(gap) for gap in gaps)) / len(keys)
    return 100 * float(np.mean([gap.mean() for gap in gaps])), 100 * float(error)


def drift(merged: Sequence[torch.Tensor], expert: Sequence[torch.Tensor]) -> list[float]:
    """Mean of 1 - cosine between two models' class tokens, per depth."""
    return [float((1 - nnf.cosine_similarity(a, b, dim=-1)).mean()) for a, b in zip(merged, expert, strict=True)]


def relative_size(pretrained: Weights, expert: Weights) -> float:
    """Norm of the task vector over the norm of the pretrained weights, in percent."""
    moved = sum(float((expert[name] - value).double().square().sum()) for name, value in pretrained.items())
    return 100 * (moved / sum(float(value.double().square().sum()) for value in pretrained.values())) ** 0.5

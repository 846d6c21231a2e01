"""Merges that are one scaled sum of task vectors, for points of sweeps on changing experts: from vectors in memory.

A merge by the engine reads every expert. Here each task vector is read once, and a subset of the experts is merged by
the method itself, on all scalars at once, with the same bytes. Adding and taking away one vector at a time would be
faster still, but rounding would make the bytes depend on the subsets before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from merging.base.free_memory import free_memory
from merging.base.threads import limit_to_one_thread
from merging.methods.method import Merge, Needs
from merging.methods.slot import Slot
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.families import UNMERGED, Role
from merging.models.inspection.fit_check import check_fit
from merging.study.runs.opened_recipe import OpenedRecipe

MEMORY_SHARE = 0.5  # of the free memory, at most, for the vectors of a team


class SummedVectors:
    """The pretrained weights and the task vectors of experts, flat (n,), in float32."""

    def __init__(self, pretrained: Checkpoint) -> None:
        self.pretrained = pretrained
        self._parameters = [parameter for parameter in pretrained.parameters if parameter.role not in UNMERGED]
        self._base = self._flatten(pretrained)
        self._vectors: dict[int, tuple[Checkpoint, Tensor]] = {}  # by identity; the checkpoint keeps it unique

    def _flatten(self, checkpoint: Checkpoint) -> Tensor:
        return torch.cat([checkpoint.read(parameter.name).reshape(-1).float() for parameter in self._parameters])

    def merge(self, opened: OpenedRecipe, name: str) -> MappingCheckpoint | None:
        """The merged model of a recipe for which ``can_sum`` holds; None if the engine has to say what is wrong."""
        for expert in opened.experts.values():
            if id(expert) not in self._vectors:
                if check_fit(self.pretrained, {expert.name: expert}, values=False).groups:
                    return None
                self._vectors[id(expert)] = expert, self._flatten(expert) - self._base
        (method,), (step,) = opened.recipe.methods, opened.recipe.steps
        assert isinstance(method, Merge)
        with limit_to_one_thread():
            vectors = torch.stack([self._vectors[id(expert)][1] for expert in opened.experts.values()])
            slot = Slot(self._parameters[0], tuple(opened.experts), self._base, vectors)
            merged = self._base + method.run(slot, step.params, None)
        opened.raise_if_changed()
        infos, start = self.pretrained.infos, 0
        unmerged = [parameter for parameter in self.pretrained.parameters if parameter.role in UNMERGED]
        tensors = {parameter.name: self.pretrained.read(parameter.name) for parameter in unmerged}
        for parameter in self._parameters:
            info = infos[parameter.name]
            tensors[parameter.name] = merged[start : start + info.numel].reshape(info.shape).to(info.dtype)
            start += info.numel
        if not all(bool(torch.isfinite(tensors[parameter.name]).all()) for parameter in self._parameters):
            return None
        model = MappingCheckpoint({key: tensors[key] for key in infos}, name)
        model.metadata = self.pretrained.metadata
        return model


def can_sum(opened: OpenedRecipe) -> bool:
    """Whether a recipe is one merge that works scalar by scalar, needs nothing else, and fits into memory."""
    (method, step), *others = opened.recipe.stages
    if others or not isinstance(method, Merge) or method.per_task or not method.is_elementwise(step.params):
        return False
    if method.surveys(step.params) or method.run_before_count or method.needs_for(step.params) != Needs.NOTHING:
        return False
    has_statistics = any(parameter.role == Role.STATISTIC for parameter in opened.pretrained.parameters)
    models = (opened.pretrained, *opened.experts.values())
    has_doubles = any(info.dtype == torch.float64 for model in models for info in model.infos.values())
    size = sum(torch.float32.itemsize * info.numel for info in opened.pretrained.infos.values())
    memory = (2 * len(opened.experts) + 4) * size
    return not has_doubles and not has_statistics and memory < MEMORY_SHARE * free_memory()

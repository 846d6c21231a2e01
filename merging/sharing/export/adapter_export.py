"""A merge of a network other than CLIP as a LoRA adapter of PEFT for the pretrained model.

The change of a matrix becomes two factors of low rank; a changed norm is stored whole. The adapter has the tensor names
of the current version of Transformers ("later names"), which may differ from those in the pretrained model's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from merging.base.errors import CheckpointError, MergingError
from merging.base.files.records import write_json
from merging.base.numerics.linear_algebra import Factors, truncated_svd
from merging.base.numerics.low_rank import find_core
from merging.base.progress import Meter
from merging.base.text import plural
from merging.engine.run_inputs import find_thin_factors
from merging.models.checkpoint import Checkpoint
from merging.models.digest_cache import DIGESTS
from merging.models.expert_names import Later, keep_name
from merging.models.families import Parameter, Role
from merging.models.formats.configs import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from merging.models.formats.model_sources import Source
from merging.models.formats.safetensors import SafetensorsWriter
from merging.models.model_references import PRETRAINED, strip_folders
from merging.models.network_facts import facts_of
from merging.models.tensor_info import TensorInfo
from merging.sharing.export.export_source import ExportSource, open_pretrained
from merging.study.runs.opened_recipe import OpenedRecipe, open_inputs

PEFT_PREFIX = "base_model.model."
MIN_SHARE = 0.5  # an adapter must retain this share of the squared norm of each change
ROUNDING_SHARE = 1e-6  # rounding may lose this share of the squared norm of a change
MAX_RANK = 4096
WRITING_PHASE = "Writing the adapter"
WHOLE_ROLES = {Role.NORM_SCALE, Role.SHIFT}  # tensors of these roles are stored whole, with their module


@dataclass
class AdapterFile:
    """The content of an adapter: factors and whole tensors by PEFT's names, and the retained share of each change."""

    rank: int
    tensors: dict[str, Tensor] = field(default_factory=dict)
    targets: list[str] = field(default_factory=list)
    whole_modules: list[str] = field(default_factory=list)  # modules that are stored whole
    shares: dict[str, float] = field(default_factory=dict)  # by the tensor's name in the pretrained model
    is_transposed: bool = False  # whether weights are stored as (d_in, d_out)

    @property
    def notes(self) -> list[str]:
        """Sentences on the part of the changes that the adapter lacks."""
        tensor = min(self.shares, key=self.shares.__getitem__)
        share = self.shares[tensor]
        if share > 1 - ROUNDING_SHARE:
            return ["The adapter retains the whole change, up to rounding."]
        return [f"The adapter retains at least {share:.1%} of the squared norm of every tensor's change ({tensor})."]

    @property
    def low_shares(self) -> dict[str, float]:
        """The shares that are too low: below ``MIN_SHARE``."""
        return {name: share for name, share in self.shares.items() if share < MIN_SHARE}


def open_adapter_base(source: ExportSource, base: Source | None, meter: Meter) -> Checkpoint:
    """The pretrained model of the adapter.

    ``base`` replaces the one at the path in a run's recipe. It is ignored for a single checkpoint, whose base is
    ``source.base``.

    Raises:
        CheckpointError: the pretrained model is missing or not the merged one, or each task has its own model.
    """
    if source.tasks:
        raise CheckpointError("An adapter holds one model, and this merge gives a model for each task. Use --to hf.")
    if source.run is None or source.recipe is None:
        if source.base is None:
            raise CheckpointError("An adapter changes a pretrained model; name that model (convert --base).")
        return source.base
    recipe = source.run.recipe
    assert recipe is not None
    pretrained = open_pretrained(recipe, base)
    expected = source.run.inputs[PRETRAINED]
    if DIGESTS.digest(pretrained, meter) != expected:
        raise CheckpointError(f"{strip_folders(pretrained.label)} is not the pretrained model of run {source.run.id}.")
    return pretrained


def make_adapter(source: ExportSource, pretrained: Checkpoint, rank: int, meter: Meter, *, force: bool) -> AdapterFile:
    """The change from the pretrained model to the merged one as an adapter of this rank.

    Raises:
        CheckpointError: the rank is invalid, or the adapter would lose too much of a tensor's change without ``force``.
    """
    if not 1 <= rank <= MAX_RANK:
        raise CheckpointError(f"The rank of an adapter is a number from 1 to {MAX_RANK}; set it with --rank.")
    (model,) = source.models.values()
    facts, adapter, experts = facts_of(pretrained.infos), AdapterFile(rank), _open_experts(source)
    later_name = facts.later_name if facts else keep_name
    changed_parameters = [
        p for p in pretrained.parameters if p.name in model.infos and _is_changed(model, pretrained, p.name)
    ]
    matrix_modules = {_module_name(p.name) for p in pretrained.parameters if p.role == Role.LINEAR}
    for parameter in changed_parameters:
        name, info = parameter.name, pretrained.infos[parameter.name]
        module, _, kind = name.rpartition(".")
        meter.report_part(0, WRITING_PHASE, name)
        if parameter.role == Role.LINEAR and kind == "weight" and len(info.shape) == 2:
            adapter.is_transposed |= parameter.transposed
            adapter.targets.append(_module_name(later_name(name)))
            adapter.shares[name] = _add_factors(
                adapter, adapter.targets[-1], _compute_change(model, pretrained, parameter), parameter, experts
            )
        elif parameter.role in WHOLE_ROLES and module not in matrix_modules:
            if _module_name(later_name(name)) not in adapter.whole_modules:
                adapter.whole_modules.append(_module_name(later_name(name)))
                _add_whole_module(adapter, module, model, later_name)
            adapter.shares[name] = 1.0
        else:
            adapter.shares[name] = 0.0  # an adapter cannot hold this change, such as that of a matrix's bias
    if adapter.low_shares and not force:
        name, share = min(adapter.low_shares.items(), key=lambda item: item[1])
        raise CheckpointError(
            f"An adapter of rank {rank} retains less than half of the change of {len(adapter.low_shares)} of "
            f"{plural(len(adapter.shares), 'tensor')} ({share:.0%} of the squared norm of the change of "
            f"{name[:80]!r}). Use a higher --rank, export the whole model (--to hf), or write the adapter anyway with "
            "--force."
        )
    if not adapter.tensors:
        raise CheckpointError("This model equals the pretrained one, so an adapter would be empty.")
    return adapter


def write_adapter(folder: Path, adapter: AdapterFile, base_id: str, metadata: Mapping[str, str]) -> int:
    """Write weights and configuration as PEFT reads them; returns the bytes of the weights.

    ``base_id`` is the pretrained model's name, on the Hub if that is known.
    """
    infos = {name: TensorInfo(tuple(value.shape), value.dtype) for name, value in sorted(adapter.tensors.items())}
    with SafetensorsWriter(folder / ADAPTER_WEIGHTS[0], infos, {**metadata, "format": "pt"}) as writer:
        for name in infos:
            writer.write(name, adapter.tensors[name].contiguous())
    settings = {
        "base_model_name_or_path": base_id,
        "bias": "none",
        "fan_in_fan_out": adapter.is_transposed,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": adapter.rank,
        "lora_dropout": 0.0,
        "modules_to_save": adapter.whole_modules or None,
        "peft_type": "LORA",
        "r": adapter.rank,
        "target_modules": adapter.targets,
        "task_type": None,
    }
    write_json(folder / ADAPTER_CONFIG, settings)
    return sum(info.nbytes for info in infos.values())


def _open_experts(source: ExportSource) -> OpenedRecipe | None:
    """The models that were merged; None without a run, or if they can no longer be opened."""
    recipe = source.run.recipe if source.run is not None else None
    try:
        return None if recipe is None else open_inputs(recipe)
    except (MergingError, OSError):
        return None


def _module_name(name: str) -> str:
    return name.rpartition(".")[0]


def _is_changed(model: Checkpoint, pretrained: Checkpoint, name: str) -> bool:
    if model.infos[name].shape != pretrained.infos[name].shape:
        raise CheckpointError(f"{name[:80]!r} has another shape than in the pretrained model.")
    return not torch.equal(model.read(name), pretrained.read(name))


def _compute_change(model: Checkpoint, pretrained: Checkpoint, parameter: Parameter) -> Tensor:
    """The change of a weight, (d_out, d_in), in float64."""
    change = model.read(parameter.name).double() - pretrained.read(parameter.name).double()
    return change.T if parameter.transposed else change


def _add_factors(
    adapter: AdapterFile, module: str, change: Tensor, parameter: Parameter, opened_recipe: OpenedRecipe | None
) -> float:
    """Add the two factors of a change (d_out, d_in); returns the share of its squared norm that they retain."""
    up, down = torch.zeros(len(change), adapter.rank), torch.zeros(adapter.rank, change.shape[1])
    factors = _factor_in_expert_span(change, parameter, adapter.rank, opened_recipe) or truncated_svd(
        change, adapter.rank
    )
    root = factors.values.sqrt()
    up[:, : len(root)] = (factors.left * root).float()
    down[: len(root)] = (root[:, None] * factors.right).float()
    adapter.tensors[f"{PEFT_PREFIX}{module}.lora_A.weight"] = down
    adapter.tensors[f"{PEFT_PREFIX}{module}.lora_B.weight"] = up
    return min(float(factors.values.square().sum() / change.square().sum()), 1.0)


def _factor_in_expert_span(
    change: Tensor, parameter: Parameter, rank: int, opened_recipe: OpenedRecipe | None
) -> Factors | None:
    """The best factors of a change (d_out, d_in) in the span of the columns of the experts' low-rank task vectors.

    None if the change lies outside that span, or if the task vectors are unknown or not of low rank.
    """
    task_vectors = (
        None if opened_recipe is None else find_thin_factors(parameter, opened_recipe.pretrained, opened_recipe.experts)
    )
    if task_vectors is None or sum(one.rank for one in task_vectors) >= min(change.shape):
        return None
    basis = find_core([one.read().mT if parameter.transposed else one.read() for one in task_vectors]).left
    projection = basis.T @ change
    if float(projection.square().sum()) < (1 - ROUNDING_SHARE) * float(change.square().sum()):
        return None
    factors = truncated_svd(projection, rank)
    return Factors(basis @ factors.left, factors.values, factors.right)


def _add_whole_module(adapter: AdapterFile, module: str, model: Checkpoint, later_name: Later) -> None:
    """Add all tensors of a module, which replaces that module of the pretrained model."""
    for name in model.infos:
        if _module_name(name) == module:
            adapter.tensors[PEFT_PREFIX + later_name(name)] = model.read(name)

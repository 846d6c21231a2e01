"""Matches a module's parameters to the tensors of a checkpoint, because libraries rename the tensors that they load."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import torch
from torch import Tensor, nn

from merging.base.errors import FamilyError, NeedsError
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.families import Parameter, Role, guess
from merging.models.tensor_info import TensorInfo
from merging.models.tower_names import find_tower_tensor, tower_names

NUMBERS = re.compile(r"\d+")


def match_weights(
    module: nn.Module, checkpoint: Checkpoint | None, only: str, roles: Iterable[Role]
) -> dict[str, Tensor]:
    """{tensor of the checkpoint: the module's parameter of any shape (*S)}, of these roles.

    Names must match ``only``. Without a checkpoint the names are the module's own.

    Raises:
        NeedsError: a parameter is no tensor of the checkpoint, or ``only`` is no pattern.
    """
    try:
        pattern = re.compile(only)
    except re.error as error:
        raise NeedsError(f"only is a regular expression on names of parameters; got {only!r} ({error}).") from None
    named = dict(module.named_parameters(remove_duplicate=False))
    like = checkpoint or MappingCheckpoint(dict(module.named_parameters()), "the module")
    wanted, known = set(roles), {parameter.name: parameter for parameter in _parameters(like)}
    found: dict[str, Tensor] = {}
    for name, weight in named.items():
        tensor = name if checkpoint is None else match_tensor(name, weight, checkpoint)
        if tensor is None:
            if any(other is weight and n != name for n, other in named.items()):
                continue  # the same parameter has a second name, as tied embeddings have
            if weight.dim() == 3 and "experts" in name.split("."):
                if Role.STACK not in wanted:
                    continue
                raise NeedsError(
                    f"The module holds the experts of a layer in one tensor ({name}), the checkpoint in one tensor "
                    "each; choose a method without gradients."
                )
            raise NeedsError(
                f"The module's parameter {name!r} is no tensor of the checkpoint; pass like=, the expert's own file."
            )
        role = known[tensor].role if tensor in known else None
        if tensor and role in wanted and (pattern.search(name) or pattern.search(tensor)):
            found.setdefault(tensor, weight)
    return found


def _parameters(checkpoint: Checkpoint) -> tuple[Parameter, ...]:
    try:
        return checkpoint.parameters
    except FamilyError:  # a module of no known family; roles by shape suffice
        return tuple(_with_role_of_shape(parameter, checkpoint.infos) for parameter in guess(checkpoint.infos))


def _with_role_of_shape(parameter: Parameter, infos: Mapping[str, TensorInfo]) -> Parameter:
    """The parameter with the role that its number of dimensions suggests."""
    from dataclasses import replace

    sides, name = len(infos[parameter.name].shape), parameter.name
    if parameter.role == Role.BUFFER or sides == 0:
        return replace(parameter, role=Role.BUFFER)
    vector_role = Role.SHIFT if name.endswith("bias") else Role.NORM_SCALE
    return replace(parameter, role=vector_role if sides == 1 else Role.LINEAR if sides == 2 else Role.CONV)


def match_tensor(name: str, weight: Tensor, checkpoint: Checkpoint) -> str | None:
    """The name of a parameter's tensor in the checkpoint: the same name up to a prefix, or that of equal numbers.

    The parameter ``weight`` may have any shape (*S). The result is empty for key and value of a
    packed tensor, which take the same rows as its query, and None if there is no tensor.
    """
    infos = checkpoint.infos
    if name in infos:
        return name
    if not checkpoint.is_inferred and (match := find_tower_tensor(name)) is not None:
        own = tower_names(checkpoint).get(match.name, ())
        if len(own) == 1:
            return own[0] if match.qkv_index in {None, 0} else ""
        if match.qkv_index is not None and len(own) > 1:
            return own[match.qkv_index]
    fitting = [other for other in _of_shape(checkpoint, tuple(weight.shape)) if _same_end(name, other)]
    if len(fitting) == 1:
        return fitting[0]
    equal = [
        other for other in _of_shape(checkpoint, tuple(weight.shape)) if _holds_equal_numbers(weight, checkpoint, other)
    ]
    if len(equal) > 1:  # fresh norms have equal values: the numbers in the name and its ending decide
        numbers = NUMBERS.findall(name)
        equal = [other for other in equal if NUMBERS.findall(other) == numbers]
        most = max((_shared_end(name, other) for other in equal), default=0)
        equal = [other for other in equal if _shared_end(name, other) == most]
    return equal[0] if len(equal) == 1 else None


def _same_end(name: str, other: str) -> bool:
    """Whether two names differ by a prefix."""
    return name.endswith(f".{other}") or other.endswith(f".{name}")


def _shared_end(name: str, other: str) -> int:
    """The number of trailing words that two names share."""
    pairs = zip(reversed(name.split(".")), reversed(other.split(".")), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(name.count("."), other.count(".")) + 1)


def _holds_equal_numbers(weight: Tensor, checkpoint: Checkpoint, other: str) -> bool:
    """Whether a parameter (*S) holds a tensor's numbers; the first ones are compared before all of them."""
    count = min(weight.numel(), 64)
    stored = checkpoint.read_flat(other, 0, count).to(weight.dtype)
    if not torch.equal(stored, weight.detach().reshape(-1)[:count].cpu()):
        return False
    return torch.equal(checkpoint.read(other).to(weight.dtype), weight.detach().cpu())


def _of_shape(checkpoint: Checkpoint, shape: tuple[int, ...]) -> tuple[str, ...]:
    return _by_shapes(tuple((name, info.shape) for name, info in checkpoint.infos.items())).get(shape, ())


@lru_cache(maxsize=4)
def _by_shapes(infos: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[tuple[int, ...], tuple[str, ...]]:
    shapes: dict[tuple[int, ...], tuple[str, ...]] = {}
    for name, shape in infos:
        shapes[shape] = (*shapes.get(shape, ()), name)
    return shapes

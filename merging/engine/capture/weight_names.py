"""Matches a module's parameters to the tensors of a checkpoint, because libraries rename the tensors that they load."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import torch
from torch import Tensor, nn

from merging.base.errors import FamilyError, NeedsError
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.families import Parameter, Role, guess_parameters
from merging.models.tensor_info import TensorInfo
from merging.models.tower_names import find_tower_tensor, tower_names

NUMBERS = re.compile(r"\d+")  # in a name, such as the number of a block
FIRST_NUMBERS = 64  # scalars that are compared before whole tensors are


def match_weights(
    module: nn.Module, checkpoint: Checkpoint | None, only: str, roles: Iterable[Role]
) -> dict[str, Tensor]:
    """{tensor of the checkpoint: the module's parameter of any shape (*S)}, of these roles.

    Names must match ``only``. Without a checkpoint the names are the module's own.

    Raises:
        NeedsError: a parameter is not a tensor of the checkpoint, or ``only`` is not a pattern.
    """
    try:
        pattern = re.compile(only)
    except re.error as error:
        raise NeedsError(f"only is a regular expression on names of parameters; got {only!r} ({error}).") from None
    module_parameters = dict(module.named_parameters(remove_duplicate=False))
    like = checkpoint or MappingCheckpoint(dict(module.named_parameters()), "the module")
    wanted_roles = set(roles)
    role_by_name = {parameter.name: parameter.role for parameter in _list_parameters(like)}
    matches: dict[str, Tensor] = {}
    for name, weight in module_parameters.items():
        tensor = name if checkpoint is None else match_tensor(name, weight, checkpoint)
        if tensor is None:
            if any(other is weight and other_name != name for other_name, other in module_parameters.items()):
                continue  # the same parameter has a second name, as tied embeddings have
            if weight.dim() == 3 and "experts" in name.split("."):
                if Role.STACK not in wanted_roles:
                    continue
                raise NeedsError(
                    f"The module holds the experts of a layer in one tensor ({name}), the checkpoint in one tensor "
                    "each; choose a method without gradients."
                )
            raise NeedsError(
                f"The module's parameter {name!r} is not a tensor of the checkpoint; pass like=, the expert's own file."
            )
        is_wanted = role_by_name.get(tensor) in wanted_roles
        if tensor and is_wanted and (pattern.search(name) or pattern.search(tensor)):
            matches.setdefault(tensor, weight)
    return matches


def _list_parameters(checkpoint: Checkpoint) -> tuple[Parameter, ...]:
    """The checkpoint's parameters, with roles by shape if its family is unknown."""
    try:
        return checkpoint.parameters
    except FamilyError:
        return tuple(_guess_role(parameter, checkpoint.infos) for parameter in guess_parameters(checkpoint.infos))


def _guess_role(parameter: Parameter, infos: Mapping[str, TensorInfo]) -> Parameter:
    """The parameter with the role that its number of dimensions suggests."""
    from dataclasses import replace

    sides, name = len(infos[parameter.name].shape), parameter.name
    if parameter.role == Role.BUFFER or sides == 0:
        return replace(parameter, role=Role.BUFFER)
    vector_role = Role.SHIFT if name.endswith("bias") else Role.NORM_SCALE
    return replace(parameter, role=vector_role if sides == 1 else Role.LINEAR if sides == 2 else Role.CONV)


def match_tensor(name: str, weight: Tensor, checkpoint: Checkpoint) -> str | None:
    """The name of a parameter's tensor in the checkpoint: the same name up to a prefix, or the tensor of equal numbers.

    The parameter ``weight`` may have any shape (*S). The result is empty for key and value of a packed tensor, which
    take the same rows as the tensor's query, and None if there is no tensor.
    """
    infos = checkpoint.infos
    if name in infos:
        return name
    is_clip = not checkpoint.is_inferred
    if is_clip and (match := find_tower_tensor(name)) is not None:
        stored_names = tower_names(checkpoint).get(match.name, ())
        if len(stored_names) == 1:
            return stored_names[0] if match.qkv_index in {None, 0} else ""
        if match.qkv_index is not None and len(stored_names) > 1:
            return stored_names[match.qkv_index]
    candidates = _list_by_shape(checkpoint, tuple(weight.shape))
    with_same_end = [tensor for tensor in candidates if _has_same_end(name, tensor)]
    if len(with_same_end) == 1:
        return with_same_end[0]
    equal = [tensor for tensor in candidates if _has_equal_numbers(weight, checkpoint, tensor)]
    if len(equal) > 1:  # fresh norms have equal values: the numbers in the name and its ending decide
        numbers = NUMBERS.findall(name)
        equal = [tensor for tensor in equal if NUMBERS.findall(tensor) == numbers]
        longest = max((_count_shared_end(name, tensor) for tensor in equal), default=0)
        equal = [tensor for tensor in equal if _count_shared_end(name, tensor) == longest]
    return equal[0] if len(equal) == 1 else None


def _has_same_end(first: str, second: str) -> bool:
    """Whether two names differ by a prefix."""
    return first.endswith(f".{second}") or second.endswith(f".{first}")


def _count_shared_end(first: str, second: str) -> int:
    """The number of trailing words that two names share."""
    pairs = zip(reversed(first.split(".")), reversed(second.split(".")), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(first.count("."), second.count(".")) + 1)


def _has_equal_numbers(weight: Tensor, checkpoint: Checkpoint, name: str) -> bool:
    """Whether a parameter (*S) has a tensor's numbers; the first ones are compared before all of them."""
    count = min(weight.numel(), FIRST_NUMBERS)
    stored = checkpoint.read_flat(name, 0, count).to(weight.dtype)
    if not torch.equal(stored, weight.detach().reshape(-1)[:count].cpu()):
        return False
    return torch.equal(checkpoint.read(name).to(weight.dtype), weight.detach().cpu())


def _list_by_shape(checkpoint: Checkpoint, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The names of the checkpoint's tensors of a shape."""
    return _group_by_shape(tuple((name, info.shape) for name, info in checkpoint.infos.items())).get(shape, ())


@lru_cache(maxsize=4)
def _group_by_shape(infos: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[tuple[int, ...], tuple[str, ...]]:
    shapes: dict[tuple[int, ...], tuple[str, ...]] = {}
    for name, shape in infos:
        shapes[shape] = (*shapes.get(shape, ()), name)
    return shapes

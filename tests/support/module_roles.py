"""Roles that the classes of a network's modules give its tensors, to compare with those inferred from names alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn

from merging.models.families import Parameter, Role
from merging.models.tensor_info import TensorInfo

OF_CLASSES: tuple[tuple[type[nn.Module], set[Role]], ...] = (
    (nn.Embedding, {Role.VOCABULARY, Role.EMBEDDING}),
    (nn.Linear, {Role.LINEAR, Role.VOCABULARY}),
    (nn.modules.conv._ConvNd, {Role.CONV}),
    (nn.MultiheadAttention, {Role.LINEAR}),
)
OF_SIDES = {1: {Role.NORM_SCALE, Role.SHIFT, Role.EMBEDDING}, 2: {Role.LINEAR, Role.EMBEDDING}}  # of other modules


def infos(model: nn.Module) -> dict[str, TensorInfo]:
    """The tensors of a module as a file would have them, tied ones once."""
    own = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    listed = model.state_dict().items()
    return {name: TensorInfo(tuple(value.shape), value.dtype) for name, value in listed if name in own}


def allowed_roles(module: nn.Module, last: str, sides: int, buffer: bool) -> set[Role]:
    """The roles that a tensor called ``last`` may have in a module."""
    if buffer:
        return {Role.STATISTIC} if last.startswith("running_") else {Role.BUFFER}
    if last in {"bias", "in_proj_bias"}:
        return {Role.SHIFT}
    known = next((roles for made, roles in OF_CLASSES if isinstance(module, made)), None)
    if known is not None:
        return known
    kind = type(module).__name__
    if kind == "Conv1D":
        return {Role.LINEAR}
    return {Role.NORM_SCALE} if "Norm" in kind else OF_SIDES.get(sides, {Role.STACK, Role.EMBEDDING, Role.CONV})


def list_held_tensors(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, int, bool]]:
    """Name, module, last word, number of sides and whether it is a buffer, of every tensor that a module holds."""
    for path, module in model.named_modules():
        for buffer, found in ((False, module.named_parameters), (True, module.named_buffers)):
            for last, value in found(recurse=False):
                yield f"{path}.{last}" if path else last, module, last, value.dim(), buffer


def list_misread(model: nn.Module, parameters: Iterable[Parameter]) -> list[str]:
    """Tensors with a role or an orientation that their modules do not have: name, class and role."""
    inferred = {parameter.name: parameter for parameter in parameters}
    wrong = []
    for name, module, last, sides, buffer in list_held_tensors(model):
        if (found := inferred.get(name)) is None:
            continue  # it is not kept in files, or is tied to one that is
        turned = type(module).__name__ == "Conv1D" and last == "weight"
        if found.role not in allowed_roles(module, last, sides, buffer) or found.transposed != turned:
            wrong.append(f"{name} of {type(module).__name__}: {found.role}{', transposed' if found.transposed else ''}")
    return wrong


def layers(config: object) -> int:
    """How many blocks a configuration of Transformers states, of all towers."""
    parts = [getattr(config, name, None) for name in ("vision_config", "text_config", "audio_config")]
    if any(part is not None for part in parts):
        return sum(layers(part) for part in parts if part is not None)
    if depths := getattr(config, "depths", None):
        return sum(depths)
    for pair in (("encoder_layers", "decoder_layers"), ("num_layers", "num_decoder_layers")):
        counts = [getattr(config, name, None) for name in pair]
        if all(isinstance(count, int) for count in counts):
            return sum(count for count in counts if count)
    return int(config.num_hidden_layers)  # type: ignore[attr-defined]

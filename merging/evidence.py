"""What a method may see of the data: the rows that enter a layer, per expert."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from merging.errors import NeedsError

# {expert: {parameter name: rows}}: (n, d_in) entering a linear weight, (n, d) normalized rows before a norm scale.
LayerInputs = Mapping[str, Mapping[str, Tensor]]


def inputs_of(layer_inputs: LayerInputs | None, experts: tuple[str, ...], name: str) -> tuple[Tensor, ...] | None:
    """The rows entering parameter ``name``, one tensor per expert; None if nobody has any.

    Raises:
        NeedsError: some experts have rows for it and others do not.
    """
    if layer_inputs is None:
        return None
    have = [expert for expert in experts if name in layer_inputs.get(expert, {})]
    if not have:
        return None
    if len(have) < len(experts):
        missing = next(expert for expert in experts if expert not in have)
        raise NeedsError(f"Layer inputs of {name!r} are given for {have[0]!r} but not for {missing!r}.")
    return tuple(layer_inputs[expert][name] for expert in experts)

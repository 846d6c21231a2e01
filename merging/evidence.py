"""What a method may see of the data: the rows that enter a layer, per expert."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from merging.checkpoints import Checkpoint
from merging.encoder import Encoder
from merging.errors import NeedsError, first_few
from merging.families import EMBEDDINGS, Parameter, Role

# {expert: {parameter name: rows}}: (n, d_in) entering a linear weight, (n, d) normalized rows before a norm scale.
LayerInputs = Mapping[str, Mapping[str, Tensor]]


class Evidence(Protocol):
    """Rows entering a parameter, one tensor (n, d_in) per expert; None where there are none."""

    def rows(self, parameter: Parameter) -> tuple[Tensor, ...] | None: ...


class GivenInputs:
    """Layer inputs that the caller has already."""

    def __init__(self, layer_inputs: LayerInputs, experts: tuple[str, ...], pretrained: Checkpoint) -> None:
        self._inputs, self._experts, self._pretrained = layer_inputs, experts, pretrained
        named = {name for expert in experts for name in layer_inputs.get(expert, {})}
        if unknown := sorted(named - set(pretrained.infos)):
            raise NeedsError(f"Layer inputs name tensors that the model does not have: {first_few(unknown)}.")
        if not named:
            raise NeedsError(f"The layer inputs hold no rows for any of {', '.join(experts)}.")

    def rows(self, parameter: Parameter) -> tuple[Tensor, ...] | None:
        """The given rows.

        Raises:
            NeedsError: some experts have rows for this parameter and others do not, or rows that cannot enter it.
        """
        have = [e for e in self._experts if parameter.name in self._inputs.get(e, {})]
        if 0 < len(have) < len(self._experts):
            missing = next(e for e in self._experts if e not in have)
            raise NeedsError(f"Layer inputs of {parameter.name!r} are given for {have[0]!r} but not for {missing!r}.")
        return tuple(self._checked(parameter, e) for e in self._experts) if have else None

    def _checked(self, parameter: Parameter, expert: str) -> Tensor:
        rows = self._inputs[expert][parameter.name]
        shape = self._pretrained.infos[parameter.name].shape
        width = shape[0] if parameter.role in {Role.PROJECTION, Role.NORM_SCALE} else math.prod(shape[1:])
        what = f"Layer inputs of {parameter.name!r} for {expert!r}"
        if not isinstance(rows, Tensor) or rows.ndim != 2 or rows.shape[1] != width:
            found = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            raise NeedsError(f"{what} must be a tensor (n, {width}); got {found}.")
        if not torch.isfinite(rows).all():
            raise NeedsError(f"{what} hold NaN or infinity.")
        return rows


class CapturedInputs:
    """Layer inputs captured from exemplars, block by block as the merge goes through the network.

    Every expert sees its own task's exemplars (n, 3, h, w). Parameters are best asked for in forward order: memory
    holds the tokens between two blocks and the rows of one block; an earlier block costs a new pass from the start.

    Raises:
        NeedsError: an expert has no exemplars.
    """

    def __init__(
        self,
        experts: Mapping[str, Checkpoint],
        exemplars: Mapping[str, Tensor],
        device: torch.device,
        like: Checkpoint | None = None,
    ) -> None:
        if missing := [name for name in experts if not len(exemplars.get(name, ()))]:
            raise NeedsError(f"There are no exemplars for {', '.join(missing)}; give images for every expert.")
        self._encoders = [Encoder.of(checkpoint, device, on_demand=True, like=like) for checkpoint in experts.values()]
        self._images = [exemplars[name].to(device, torch.float32) for name in experts]
        self._next = 0  # section to run next: 0 the stem, 1 … the blocks, then the output
        self._tokens: list[Tensor] = []
        self._rows: list[dict[str, Tensor]] = []

    def rows(self, parameter: Parameter) -> tuple[Tensor, ...] | None:
        """The rows that enter this parameter in each expert."""
        self._go_to(self._section(parameter))
        found = [rows[parameter.name] for rows in self._rows if parameter.name in rows]
        return tuple(found) if found else None

    def _section(self, parameter: Parameter) -> int:
        if parameter.block is not None:
            return parameter.block + 1
        return 0 if parameter.section == EMBEDDINGS else self._encoders[0].architecture.layers + 1

    def _go_to(self, section: int) -> None:
        """Run forward (after starting over, if it lies behind) until the rows are those of ``section``."""
        if section < self._next - 1:
            self._next = 0
        with torch.inference_mode():
            while self._next <= section:
                self._run(self._next, record=self._next == section)
                self._next += 1

    def _run(self, section: int, *, record: bool) -> None:
        self._rows = [{} for _ in self._encoders]
        inputs = self._images if section == 0 else self._tokens
        after = []
        for encoder, x, rows in zip(self._encoders, inputs, self._rows, strict=True):
            see = rows.__setitem__ if record else None
            if section == 0:
                after.append(encoder.stem(x, see))
            elif section <= encoder.architecture.layers:
                after.append(encoder.block(x, section - 1, see))
            else:
                after.append(encoder.head(x, see))
        self._tokens = after

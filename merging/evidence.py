"""What a method may see of the data: the rows that enter a layer, per expert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from merging.checkpoints import Checkpoint
from merging.encoder import Encoder
from merging.errors import NeedsError
from merging.families import EMBEDDINGS, Parameter

# {expert: {parameter name: rows}}: (n, d_in) entering a linear weight, (n, d) normalized rows before a norm scale.
LayerInputs = Mapping[str, Mapping[str, Tensor]]


class Evidence(Protocol):
    """Rows entering a parameter, one tensor (n, d_in) per expert; None where there are none."""

    def rows(self, parameter: Parameter) -> tuple[Tensor, ...] | None: ...


class GivenInputs:
    """Layer inputs that the caller has already."""

    def __init__(self, layer_inputs: LayerInputs, experts: tuple[str, ...]) -> None:
        self._inputs, self._experts = layer_inputs, experts

    def rows(self, parameter: Parameter) -> tuple[Tensor, ...] | None:
        """The given rows.

        Raises:
            NeedsError: some experts have rows for this parameter and others do not.
        """
        have = [e for e in self._experts if parameter.name in self._inputs.get(e, {})]
        if 0 < len(have) < len(self._experts):
            missing = next(e for e in self._experts if e not in have)
            raise NeedsError(f"Layer inputs of {parameter.name!r} are given for {have[0]!r} but not for {missing!r}.")
        return tuple(self._inputs[e][parameter.name] for e in self._experts) if have else None


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

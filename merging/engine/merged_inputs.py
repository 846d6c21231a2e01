"""The inputs of each layer when all layers before it are merged, as in the merged model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from merging.engine.layer_inputs import CapturedInputs, OnDetail
from merging.images.image_encoder import Encoder
from merging.methods.moments import Moments
from merging.models.checkpoint import Checkpoint
from merging.models.tower_names import assemble


class MergedInputs(CapturedInputs):
    """Layer inputs of every expert's exemplars, which pass through the merged sections before the layer's section.

    Inside its section (what comes before the blocks, one block, or what follows them), a layer's inputs pass through
    the expert's own layers. Callers request parameters in forward
    order and pass every merged tensor to ``add``. Memory holds, besides a section's moments, the merged tensors of a
    section and the tokens of all exemplars. All computations are in ``dtype``.

    Raises:
        NeedsError: an expert has no exemplars, or images that its tower cannot take.
    """

    def __init__(
        self,
        pretrained: Checkpoint,
        experts: Mapping[str, Checkpoint],
        exemplars: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(experts, exemplars, device, like=pretrained)
        self._images = {name: exemplars[name].to(device, dtype) for name in self._images}
        self._experts, self._device, self._dtype = experts, device, dtype
        self._encoder = Encoder.from_checkpoint(pretrained, device, on_demand=True)
        self._merged: dict[str, Tensor] = {}

    def add(self, name: str, values: Tensor) -> None:
        """Add a whole merged tensor of any shape (*S)."""
        self._merged[name] = values

    def _run_to(self, section: int, on_detail: OnDetail) -> None:
        """Run forward until the moments are those of ``section``; all sections before it must be merged."""
        with torch.no_grad():
            while self._next_section <= section:
                if self._next_section > 0:
                    merged = self._section_tower(self._encoder, self._next_section - 1, self._merged.pop)
                    self._run_experts(partial(self._pass_merged_section, merged, on_detail))
                self._moments = []
                if self._next_section == section:
                    self._moments = self._run_experts(partial(self._pass_own_section, on_detail))
                self._next_section += 1

    def _pass_merged_section(self, merged: Encoder, on_detail: OnDetail, name: str) -> dict[str, Moments]:
        """Pass an expert's tokens through the merged section before the next one; the moments returned are empty."""
        return self._run(name, merged, self._next_section - 1, on_detail, record=False, move=True)

    def _pass_own_section(self, on_detail: OnDetail, name: str) -> dict[str, Moments]:
        """The moments of an expert's tokens as they pass through the expert's own next section."""
        section = self._section_tower(self._encoders[name], self._next_section, self._experts[name].read)
        return self._run(name, section, self._next_section, on_detail, record=True, move=False)

    def _section_tower(self, encoder: Encoder, section: int, read: Callable[[str], Tensor]) -> Encoder:
        """A tower with the tensors of one section only; ``read`` returns a stored tensor by its name."""
        names = {name: stored for name, stored in encoder.names.items() if encoder.find_section(name) == section}
        tensors = {
            name: assemble(name, stored, [read(part).to(self._device, self._dtype) for part in stored])
            for name, stored in names.items()
        }
        return Encoder(encoder.architecture, tensors, encoder.names, encoder.causal)

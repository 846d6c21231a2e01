"""The models that differ from a merged one by what is put back: one tensor, one block, or one kind of tensor.

A change has no effect before the section that holds it (the stem, a block, the head). So the tokens that enter a
section are computed once, and each variant runs from there: in block b of B it costs (B - b + 1) / B of a pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from merging.base.progress import Meter
from merging.base.threads import run_in_threads
from merging.images.batch_sizes import forward_bytes
from merging.images.image_encoder import Encoder
from merging.models.checkpoint import Checkpoint
from merging.models.families import OUTPUT, UNMERGED, Parameter
from merging.models.tower_names import assemble

TENSOR, BLOCK, KIND = "tensor", "block", "kind"  # levels; the embeddings and the output count as blocks, too
PHASE_TEXT = "Putting weights back"


@dataclass(frozen=True)
class PutBackVariant:
    """A model with some tensors put back: one, those of a section, or those of a role, which ``name`` names."""

    level: str
    name: str
    tensors: frozenset[str]
    first_section: int  # the first section of the network that differs: 0 is the stem, b + 1 is block b


def list_variants(parameters: Sequence[Parameter]) -> list[PutBackVariant]:
    """Every tensor, every section and every role that has several tensors, each level in forward order."""
    merged = [parameter for parameter in parameters if parameter.role not in UNMERGED]
    last_section = 2 + max((parameter.block for parameter in merged if parameter.block is not None), default=-1)
    first_sections = {
        p.name: last_section if p.section == OUTPUT else 0 if p.block is None else p.block + 1 for p in merged
    }
    groups: dict[tuple[str, str], list[str]] = {}
    for parameter in sorted(merged, key=lambda p: (first_sections[p.name], p.order)):
        for group in ((TENSOR, parameter.name), (BLOCK, parameter.section), (KIND, str(parameter.role))):
            groups.setdefault(group, []).append(parameter.name)
    variants = [
        PutBackVariant(level, name, frozenset(names), min(first_sections[tensor] for tensor in names))
        for (level, name), names in groups.items()
        if level == TENSOR or len(names) > 1
    ]
    return sorted(variants, key=lambda variant: (TENSOR, BLOCK, KIND).index(variant.level))


@dataclass(frozen=True)
class PutBackTower:
    """A merged model's tower on a device, and the pretrained model from which its tensors are put back."""

    merged: Checkpoint
    pretrained: Checkpoint
    encoder: Encoder

    @classmethod
    def load(cls, merged: Checkpoint, pretrained: Checkpoint, device: torch.device | str) -> PutBackTower:
        """The tower of a merged model, loaded into memory."""
        return cls(merged, pretrained, Encoder.from_checkpoint(merged, device, fallback=pretrained))

    def put_back(self, names: Collection[str]) -> Encoder:
        """The tower with these tensors, by their stored names, taken from the pretrained model."""
        tensors = dict(self.encoder.tensors)
        for name, parts in self.encoder.names.items():
            if not names or all(part not in names for part in parts):
                continue
            stored = [(self.pretrained if part in names else self.merged).read(part) for part in parts]
            on_device = [tensor.to(self.encoder.device, torch.float32) for tensor in stored]
            tensors[name] = assemble(name, parts, on_device)
        return replace(self.encoder, tensors=tensors)

    def count_work(self, variants: Sequence[PutBackVariant], image_count: int) -> int:
        """Images times sections that ``compute_features`` runs."""
        sections = self.encoder.sections
        kind_count = sum(variant.level == KIND for variant in variants)
        section_passes = sum(sections - variant.first_section for variant in variants if variant.level != KIND)
        return image_count * (2 * sections - 1 + sections * kind_count + section_passes)

    def compute_features(
        self, variants: Sequence[PutBackVariant], batches: Sequence[Tensor], meter: Meter
    ) -> Iterator[tuple[PutBackVariant | None, Tensor]]:
        """(variant, features (n, d) on the CPU): first None, the merged model, then variants by section, then kinds.

        ``batches`` are preprocessed images (b, 3, h, w).
        """
        images = [batch.to(self.encoder.device) for batch in batches]
        yield None, self._finish_pass(self.encoder, 0, images, meter, "nothing")
        tokens = images
        for section in range(self.encoder.sections):
            for variant in variants:
                if variant.level != KIND and variant.first_section == section:
                    yield variant, self._variant_features(variant, tokens, meter)
            if section + 1 < self.encoder.sections:
                tokens = self._run_section(self.encoder, section, tokens, meter, "")
        for variant in variants:
            if variant.level == KIND:
                tokens = images
                for section in range(variant.first_section):
                    tokens = self._run_section(self.encoder, section, tokens, meter, variant.name)
                yield variant, self._variant_features(variant, tokens, meter)

    def _variant_features(self, variant: PutBackVariant, tokens: Sequence[Tensor], meter: Meter) -> Tensor:
        return self._finish_pass(self.put_back(variant.tensors), variant.first_section, tokens, meter, variant.name)

    def _finish_pass(
        self, encoder: Encoder, section: int, tokens: Sequence[Tensor], meter: Meter, detail: str
    ) -> Tensor:
        """Features (n, d) from the batches of tokens that enter a section."""
        for later_section in range(section, encoder.sections):
            tokens = self._run_section(encoder, later_section, tokens, meter, detail)
        return torch.cat([x.cpu() for x in tokens])

    def _run_section(
        self, encoder: Encoder, section: int, tokens: Sequence[Tensor], meter: Meter, detail: str
    ) -> list[Tensor]:
        """The outputs of a section, batch by batch; batches run in parallel threads."""
        nbytes = forward_bytes(max(map(len, tokens), default=0), encoder.architecture)
        outputs = list[Tensor]()
        with run_in_threads(
            (partial(_run_batches, encoder, section, x) for x in tokens), encoder.device, nbytes
        ) as results:
            for x in results:
                outputs.append(x)
                meter.advance(len(x), PHASE_TEXT, detail)
        return outputs


def _run_batches(encoder: Encoder, section: int, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return encoder.run_section(section, x)

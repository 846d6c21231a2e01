"""Tokens that enter the sections of models for batches of images, so that a pass starts at the first change.

A model that equals another one before section s is run from s on. Kept tokens are at most ``LIMIT`` bytes; the least
recently used ones make room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.checkpoints.architecture import Architecture
from merging.clip.image_encoder import Encoder
from merging.previews.samples import ImageBatch, Pixels

LIMIT = 1 << 28  # bytes
EXACT = 2  # every second depth is kept in single precision before half precision is taken


@dataclass(frozen=True, slots=True)
class Keeping:
    """Which tokens are kept: those that enter every ``stride``-th section, in ``dtype``; none if ``stride`` is 0."""

    stride: int
    dtype: torch.dtype

    @classmethod
    def of(cls, architecture: Architecture, images: int, limit: int = LIMIT) -> Keeping:
        """The most that fits into ``limit`` bytes for a number of images: depths are thinned out before rounding."""
        tokens = (architecture.image_size // architecture.patch_size) ** 2 + 1
        scalars = images * tokens * architecture.width
        depths = architecture.layers + 1  # before every block, and before the head
        for dtype, most in ((torch.float32, EXACT), (torch.float16, depths)):
            for stride in range(1, most + 1):
                if scalars * dtype.itemsize * -(-depths // stride) <= limit:
                    return cls(stride, dtype)
        return cls(0, torch.float32)

    def keeps(self, section: int, sections: int) -> bool:
        """Whether the tokens that enter a section are kept; features, which leave the last one, always are."""
        return section == sections or (self.stride > 0 and section > 0 and (section - 1) % self.stride == 0)


class TokenCache:
    """Kept tokens by model, batch and section."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._kept: OrderedDict[tuple[object, ...], Tensor] = OrderedDict()
        self.nbytes = 0

    def features(
        self,
        encoder: Encoder,
        batch: ImageBatch,
        prepare: Callable[[Pixels], Tensor],
        model: str,
        first: int,
        keeping: Keeping,
    ) -> Tensor:
        """Features (n, embed_dim) of a batch, on the CPU.

        ``model`` names a model that equals this one in every section before ``first`` (``encoder.sections``: in all).
        The pass starts from that model's kept tokens where there are some, and keeps those that both have in common.
        """
        start, x = self._latest(model, batch, first)
        with torch.inference_mode():
            x = prepare(batch.images).to(encoder.device) if x is None else x.to(encoder.device, torch.float32)
            for section in range(start, encoder.sections):
                x = encoder.run(section, x)
                if section + 1 <= first and keeping.keeps(section + 1, encoder.sections):
                    self._keep(model, batch, section + 1, x, keeping.dtype)
        return x.cpu()

    def start(self, model: str, batch: ImageBatch, first: int) -> int:
        """The section from which a pass would start; 0 is from the images."""
        return next((s for s in range(first, 0, -1) if (model, batch.key, s) in self._kept), 0)

    def _latest(self, model: str, batch: ImageBatch, first: int) -> tuple[int, Tensor | None]:
        """The last section up to ``first`` whose tokens are kept, and they; (0, None) if there are none."""
        section = self.start(model, batch, first)
        if not section:
            return 0, None
        self._kept.move_to_end((model, batch.key, section))
        return section, self._kept[model, batch.key, section]

    def _keep(self, model: str, batch: ImageBatch, section: int, x: Tensor, dtype: torch.dtype) -> None:
        key = (model, batch.key, section)
        if key in self._kept:
            return
        kept = x.to("cpu", dtype)
        if kept.nbytes > self._limit:
            return
        self._kept[key] = kept
        self.nbytes += kept.nbytes
        while self.nbytes > self._limit:
            self.nbytes -= self._kept.popitem(last=False)[1].nbytes

"""Tokens that enter the sections of models for batches of images, so that a pass starts at the first change.

Tokens are kept by the sections that they have passed, not by models: whatever models agree up to a section share them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.images.batch_sizes import limit_batch
from merging.images.image_encoder import Encoder
from merging.models.architecture import Architecture
from merging.study.previews.preview_samples import ImageBatch, Pixels

LIMIT = 1 << 28  # bytes
EXACT = 2  # every second depth is kept in single precision before half precision is taken
Key = tuple[tuple[Hashable, ...], tuple[object, ...]]  # the sections that were passed, and the batch


@dataclass(frozen=True, slots=True)
class CacheResolution:
    """Which tokens are kept: those that enter every ``stride``-th block, in ``dtype``; none if ``stride`` is 0."""

    stride: int
    dtype: torch.dtype

    @classmethod
    def fit(cls, architecture: Architecture, images: int, limit: int = LIMIT) -> CacheResolution:
        """The most that fits into ``limit`` bytes for a number of images: depths are thinned out before rounding."""
        tokens = (architecture.image_size // architecture.patch_size) ** 2 + 1
        scalars = images * tokens * architecture.width
        depths = architecture.layers + 1  # before every block, and before the head
        for dtype, most in ((torch.float32, EXACT), (torch.float16, depths)):
            for stride in range(1, most + 1):
                if scalars * dtype.itemsize * -(-depths // stride) <= limit:
                    return cls(stride, dtype)
        return cls(0, torch.float32)

    @property
    def rounds(self) -> bool:
        """Whether kept tokens have fewer digits than those that were computed."""
        return self.stride > 0 and self.dtype != torch.float32

    def keeps(self, section: int) -> bool:
        """Whether the tokens that enter a section are kept."""
        return self.stride > 0 and (section - 1) % self.stride == 0


class TokenCache:
    """Kept tokens, at most ``limit`` bytes; the least recently used ones make room."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._kept: OrderedDict[Key, Tensor] = OrderedDict()  # least recently used first
        self._safe: set[Key] = set()
        self.nbytes = 0

    def begin(self, *models: Sequence[Hashable]) -> None:
        """Begin another piece of work: the tokens of these models stay until the next one begins."""
        prefixes = {tuple(names[:section]) for names in models for section in range(1, len(names) + 1)}
        self._safe = {key for key in self._kept if key[0] in prefixes}
        for key in self._safe:
            self._kept.move_to_end(key)

    def features(
        self,
        encoder: Encoder,
        names: Sequence[Hashable],
        batch: ImageBatch,
        prepare: Callable[[Pixels], Tensor],
        keeping: CacheResolution,
    ) -> Tensor:
        """Features (n, embed_dim) of a batch, on the CPU.

        ``names`` has a name for each section of the encoder: sections with one name hold the same tensors. The pass
        starts from the last kept tokens that passed the same sections, and keeps those that it computes.
        """
        start = self.start_section(names, batch)
        most = limit_batch(len(batch.images), encoder.architecture, encoder.device)
        with torch.inference_mode():
            if start:
                self._kept.move_to_end((tuple(names[:start]), batch.key))
                x = self._kept[tuple(names[:start]), batch.key].to(torch.float32)
            else:
                x = prepare(batch.images)
            for section in range(start, encoder.sections):
                pieces = [encoder.run(section, piece.to(encoder.device)) for piece in x.split(most)]
                x = pieces[0] if len(pieces) == 1 else torch.cat([piece.cpu() for piece in pieces])
                if section + 1 < encoder.sections and keeping.keeps(section + 1):
                    self._keep((tuple(names[: section + 1]), batch.key), x, keeping.dtype)
        return x.cpu()

    def start_section(self, names: Sequence[Hashable], batch: ImageBatch) -> int:
        """The section from which a pass would start; 0 is from the images."""
        return next((s for s in range(len(names) - 1, 0, -1) if (tuple(names[:s]), batch.key) in self._kept), 0)

    def drop_one(self) -> bool:
        """Drop the tokens that were not used for longest; False if there are none."""
        if not self._kept:
            return False
        key, tokens = self._kept.popitem(last=False)
        self._safe.discard(key)
        self.nbytes -= tokens.nbytes
        return True

    def _keep(self, key: Key, x: Tensor, dtype: torch.dtype) -> None:
        """Keep tokens if there is room without those that this piece of work needs."""
        kept = x.to("cpu", dtype)
        while self.nbytes + kept.nbytes > self.limit:
            if next(iter(self._kept), None) in self._safe or not self.drop_one():
                return
        self._kept[key] = kept
        self._safe.add(key)
        self.nbytes += kept.nbytes

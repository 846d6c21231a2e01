"""A cache of the tokens that enter the sections of models, so that a pass starts at the first changed section.

Tokens are cached by the sections that they have passed, not by model: models with equal sections share them.
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

MAX_BYTES = 1 << 28
MAX_EXACT_STRIDE = 2  # of caches in single precision; coarser caches are in half precision
Key = tuple[tuple[Hashable, ...], tuple[object, ...]]  # the sections that were passed, and the batch


@dataclass(frozen=True, slots=True)
class CacheResolution:
    """The tokens that are cached: those that enter every ``stride``-th block, in ``dtype``; none if ``stride`` is 0."""

    stride: int
    dtype: torch.dtype

    @classmethod
    def choose(cls, architecture: Architecture, images: int, limit: int = MAX_BYTES) -> CacheResolution:
        """The finest resolution that fits into ``limit`` bytes for ``images``; depths are thinned before rounding."""
        tokens = (architecture.image_size // architecture.patch_size) ** 2 + 1
        scalars = images * tokens * architecture.width
        depths = architecture.layers + 1  # before every block, and before the head
        for dtype, max_stride in ((torch.float32, MAX_EXACT_STRIDE), (torch.float16, depths)):
            for stride in range(1, max_stride + 1):
                if scalars * dtype.itemsize * -(-depths // stride) <= limit:
                    return cls(stride, dtype)
        return cls(0, torch.float32)

    @property
    def is_rounding(self) -> bool:
        """Whether cached tokens have fewer digits than computed ones."""
        return self.stride > 0 and self.dtype != torch.float32

    def is_cached(self, section: int) -> bool:
        """Whether the tokens that enter a section are cached."""
        return self.stride > 0 and (section - 1) % self.stride == 0  # section 0 is the stem, 1 the first block


class TokenCache:
    """A cache of tokens of at most ``limit`` bytes; the least recently used ones are dropped."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self.limit = limit
        self._cached: OrderedDict[Key, Tensor] = OrderedDict()  # least recently used first
        self._protected: set[Key] = set()
        self.nbytes = 0

    def begin(self, *models: Sequence[Hashable]) -> None:
        """Begin the next preview: the tokens of these models stay until another preview begins."""
        prefixes = {tuple(names[:section]) for names in models for section in range(1, len(names) + 1)}
        self._protected = {key for key in self._cached if key[0] in prefixes}
        for key in self._protected:
            self._cached.move_to_end(key)

    def features(
        self,
        encoder: Encoder,
        names: Sequence[Hashable],
        batch: ImageBatch,
        prepare: Callable[[Pixels], Tensor],
        resolution: CacheResolution,
    ) -> Tensor:
        """Features (n, embed_dim) of a batch, on the CPU; ``prepare`` maps pixels (n, h, w, 3) to inputs (n, 3, h, w).

        ``names`` has a name for each section of the encoder; sections with equal names have equal tensors. The pass
        starts from the deepest cached tokens that passed the same sections, and caches those that it computes.
        """
        start = self.find_start(names, batch)
        batch_size = limit_batch(len(batch.images), encoder.architecture, encoder.device)
        with torch.inference_mode():
            if start:
                self._cached.move_to_end((tuple(names[:start]), batch.key))
                x = self._cached[tuple(names[:start]), batch.key].to(torch.float32)
            else:
                x = prepare(batch.images)
            for section in range(start, encoder.sections):
                pieces = [encoder.run_section(section, piece.to(encoder.device)) for piece in x.split(batch_size)]
                x = pieces[0] if len(pieces) == 1 else torch.cat([piece.cpu() for piece in pieces])
                if section + 1 < encoder.sections and resolution.is_cached(section + 1):
                    self._store((tuple(names[: section + 1]), batch.key), x, resolution.dtype)
        return x.cpu()

    def find_start(self, names: Sequence[Hashable], batch: ImageBatch) -> int:
        """The first section that a pass would run; 0 means from the images."""
        return next((s for s in range(len(names) - 1, 0, -1) if (tuple(names[:s]), batch.key) in self._cached), 0)

    def drop_one(self) -> bool:
        """Drop the least recently used tokens; False if there are none."""
        if not self._cached:
            return False
        key, tokens = self._cached.popitem(last=False)
        self._protected.discard(key)
        self.nbytes -= tokens.nbytes
        return True

    def _store(self, key: Key, x: Tensor, dtype: torch.dtype) -> None:
        """Cache tokens if there is room without dropping those of the current preview."""
        tokens = x.to("cpu", dtype)
        while self.nbytes + tokens.nbytes > self.limit:
            if next(iter(self._cached), None) in self._protected or not self.drop_one():
                return
        self._cached[key] = tokens
        self._protected.add(key)
        self.nbytes += tokens.nbytes

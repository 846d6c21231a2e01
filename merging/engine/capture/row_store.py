"""The rows that enter each weight, batch by batch: sampled, shared between weights, and reduced to moments."""

from __future__ import annotations

import copy
import hashlib
import json
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.errors import NeedsError
from merging.methods.moments import Moments


class LayerRows(dict[str, Moments]):
    """The result of ``capture``: moments of the rows that entered each weight of one expert, {parameter name: moments}.

    ``examples`` is the number of examples. ``model`` is the digest of the expert's checkpoint, or empty.
    """

    def __init__(self, moments: Mapping[str, Moments], examples: int, model: str = "") -> None:
        super().__init__(moments)
        self.examples, self.model = examples, model


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows (n, d) of one call and the random keys (n,) that decide the sample; ``scale`` if a norm scale takes them."""

    rows: Tensor
    keys: Tensor
    scale: bool


class Collector:
    """The rows of all weights that always take the same rows: at most ``tokens``, in the order of arrival."""

    def __init__(self, width: int, scale: bool, tokens: int | None) -> None:
        self._tokens, self._moments = tokens, Moments(width, scale)
        self._rows: list[Tensor] = []
        self._keys: list[Tensor] = []

    def add(self, chunk: Chunk) -> None:
        """Add the rows of a call."""
        if self._tokens is None:
            self._moments.add(chunk.rows)
            return
        self._rows.append(chunk.rows)
        self._keys.append(chunk.keys)
        if sum(map(len, self._keys)) > 2 * self._tokens:
            self._sample_keys(self._tokens)

    def _sample_keys(self, tokens: int) -> None:
        rows, keys = torch.cat(self._rows), torch.cat(self._keys)
        sampled = smallest_keys(keys, tokens)
        self._rows, self._keys = [rows[sampled]], [keys[sampled]]

    def moments(self) -> Moments:
        """The moments of the sampled rows. Call it once, after the last ``add``."""
        if self._tokens is not None and self._rows:
            self._sample_keys(self._tokens)
            self._moments.add(self._rows.pop())
        return self._moments


def smallest_keys(keys: Tensor, count: int) -> Tensor:
    """The indices (min(n, count),) of the ``count`` smallest of the keys (n,), in ascending order of the indices."""
    if len(keys) <= count:
        return torch.arange(len(keys))
    return keys.topk(count, largest=False).indices.sort().values


class RowStore:
    """Collects the rows that enter every weight of a module, batch by batch."""

    def __init__(self, tokens: int | None, seed: int) -> None:
        self._tokens, self._seed, self._batch = tokens, seed, 0
        self._collectors: dict[str, Collector] = {}  # by weight; weights that always take the same rows share one
        self._chunks: list[Chunk] = []  # of this batch
        self._entered: dict[str, list[int]] = {}  # by weight, indices in ``_chunks``
        self._parts: dict[str, dict[int, list[tuple[int, int]]]] = {}  # of packed weights: the rows used, by chunk
        self._seen: dict[tuple[int, int, object], tuple[weakref.ref[Tensor], int]] = {}  # inputs of this batch
        self.dropped: set[str] = set()  # packed weights whose parts took different rows

    def add_call(
        self,
        name: str,
        x: Tensor,
        view: Callable[[], Tensor],
        kind: tuple[str, ...],
        mask: Tensor | None,
        part: tuple[int, int] | None = None,
        lead: int = 1,
    ) -> None:
        """Add the rows of a call: ``view()`` makes them (*lead, *row) from its input ``x`` (any shape).

        ``lead`` is the number of dimensions before those of a row. ``kind`` identifies the way in which ``view`` makes
        rows from ``x``. ``mask`` (*lead) is true for rows that count. ``part`` is the range of a packed weight's rows
        that the call used.
        """
        turn = len(self._entered.get(name, ()))
        version = 0 if x.is_inference() else x._version  # a tensor that was changed in place is another input
        key = (id(x), version, (kind, part is None and turn, None if mask is None else id(mask)))
        before = self._seen.get(key)
        if before is None or before[0]() is not x:
            self._chunks.append(self._chunk(name, view(), lead, mask, kind[0] == "scale", turn))
            before = self._seen[key] = (weakref.ref(x), len(self._chunks) - 1)
        index = before[1]
        if part is not None:
            parts = self._parts.setdefault(name, {}).setdefault(index, [])
            parts.append(part)
            if len(parts) > 1:
                return
        self._entered.setdefault(name, []).append(index)

    def _chunk(self, name: str, view: Tensor, lead: int, mask: Tensor | None, scale: bool, turn: int) -> Chunk:
        shape = view.shape[:lead]
        indices = torch.arange(shape.numel()) if mask is None else mask.reshape(-1).nonzero()[:, 0].cpu()
        seed_text = json.dumps(["rows", self._seed, self._batch, turn, shape.numel()]).encode()
        seed = int.from_bytes(hashlib.blake2b(seed_text, digest_size=7).digest(), "little")
        keys = torch.rand(shape.numel(), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))[indices]
        if self._tokens is not None:
            sampled = smallest_keys(keys, self._tokens)
            indices, keys = indices[sampled], keys[sampled]
        rows = view[tuple(index.to(view.device) for index in torch.unravel_index(indices, shape))].flatten(1)
        dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
        rows = rows.detach().to("cpu", dtype, copy=True)
        if not torch.isfinite(rows).all():
            raise NeedsError(f"What enters {name!r} holds NaN or infinity.")
        return Chunk(rows, keys, scale)

    def end_batch(self) -> None:
        """Pass the rows of this batch to the weights' collectors, and separate weights that took different rows."""
        together: dict[tuple[int, tuple[int, ...]], Collector] = {}
        assigned: set[int] = set()
        for name, indices in self._entered.items():
            if not self._whole(name, indices):
                continue
            old = self._collectors.get(name)
            key = (0 if old is None else id(old), tuple(indices))
            if key not in together:
                first = self._chunks[indices[0]]
                one = Collector(first.rows.shape[1], first.scale, self._tokens) if old is None else old
                together[key] = copy.deepcopy(one) if id(one) in assigned else one
                assigned.add(id(one))
            self._collectors[name] = together[key]
        self._separate_absent(assigned)
        for (_, seen), collector in together.items():
            for index in seen:
                collector.add(self._chunks[index])
        self._chunks, self._entered, self._parts, self._seen = [], {}, {}, {}
        self._batch += 1

    def _separate_absent(self, assigned: set[int]) -> None:
        """Give weights that took no rows in this batch a copy of their collector from before the batch."""
        copies: dict[int, Collector] = {}
        for name, collector in self._collectors.items():
            if name not in self._entered and id(collector) in assigned:
                self._collectors[name] = copies.setdefault(id(collector), copy.deepcopy(collector))

    def _whole(self, name: str, indices: list[int]) -> bool:
        """Whether all parts of a packed weight took the same rows; true for weights that are not used in parts."""
        parts = self._parts.get(name)
        used = {part for own in (parts or {}).values() for part in own}
        if parts is not None and any(set(own) != used for own in parts.values()):
            self.dropped.add(name)
        return name not in self.dropped

    def moments(self) -> dict[str, Moments]:
        """The moments of every weight that rows entered; weights with the same rows share them."""
        moments = {id(collector): collector.moments() for collector in set(self._collectors.values())}
        return {name: moments[id(one)] for name, one in self._collectors.items() if name not in self.dropped}

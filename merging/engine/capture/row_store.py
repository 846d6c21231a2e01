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
    """Rows (n, d) of one call and random keys (n,): the rows with the smallest keys are sampled.

    ``is_scale`` is whether a norm scale multiplies the rows.
    """

    rows: Tensor
    keys: Tensor
    is_scale: bool


class Collector:
    """The rows of all weights that always take the same rows: at most ``tokens``, in the order of arrival."""

    def __init__(self, width: int, is_scale: bool, tokens: int | None) -> None:
        self._tokens, self._moments = tokens, Moments(width, is_scale)
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
            self._discard_rows(self._tokens)

    def _discard_rows(self, tokens: int) -> None:
        """Discard all rows except the ``tokens`` rows with the smallest keys."""
        rows, keys = torch.cat(self._rows), torch.cat(self._keys)
        sampled = smallest_keys(keys, tokens)
        self._rows, self._keys = [rows[sampled]], [keys[sampled]]

    def finish(self) -> Moments:
        """Return the moments of the sampled rows. Call it once, after the last ``add``."""
        if self._tokens is not None and self._rows:
            self._discard_rows(self._tokens)
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
        self._chunk_indices: dict[str, list[int]] = {}  # by weight, its chunks of this batch
        # {packed weight: {chunk: the ranges of the weight's rows that were used}}
        self._parts: dict[str, dict[int, list[tuple[int, int]]]] = {}
        # {identity of an input of this batch: (the input, the index of its chunk)}
        self._chunk_by_input: dict[tuple[int, int, object], tuple[weakref.ref[Tensor], int]] = {}
        self.dropped: set[str] = set()  # packed weights whose parts took different rows

    def add_call(
        self,
        name: str,
        x: Tensor,
        view: Callable[[], Tensor],
        kind: tuple[str, ...],
        mask: Tensor | None,
        part: tuple[int, int] | None = None,
        leading_dims: int = 1,
    ) -> None:
        """Add the rows of a call: ``view()`` makes them (*leading, *row) from the call's input ``x`` (any shape).

        ``leading_dims`` is the number of dimensions before those of a row. ``kind`` identifies the way in which
        ``view`` makes rows from ``x``. ``mask`` (*leading) is true for rows that count. ``part`` is the range of a
        packed weight's rows that the call used.
        """
        call_number = len(self._chunk_indices.get(name, ()))
        version = 0 if x.is_inference() else x._version  # a tensor that was changed in place is another input
        # Each further call of a weight with one input samples other rows; parts of a packed weight share their rows.
        sampling = call_number if part is None else 0
        key = (id(x), version, (kind, sampling, None if mask is None else id(mask)))
        known_input, index = self._chunk_by_input.get(key, (None, 0))
        if known_input is None or known_input() is not x:  # another tensor may have had the same id
            index = len(self._chunks)
            self._chunks.append(self._make_chunk(name, view(), leading_dims, mask, kind[0] == "scale", call_number))
            self._chunk_by_input[key] = weakref.ref(x), index
        if part is not None:
            parts = self._parts.setdefault(name, {}).setdefault(index, [])
            parts.append(part)
            if len(parts) > 1:
                return
        self._chunk_indices.setdefault(name, []).append(index)

    def _make_chunk(
        self, name: str, view: Tensor, leading_dims: int, mask: Tensor | None, is_scale: bool, call_number: int
    ) -> Chunk:
        """The rows (n, d) of a view (*leading, *row) for which ``mask`` is true, sampled if they are many."""
        shape = view.shape[:leading_dims]
        indices = torch.arange(shape.numel()) if mask is None else mask.reshape(-1).nonzero()[:, 0].cpu()
        seed_text = json.dumps(["rows", self._seed, self._batch, call_number, shape.numel()]).encode()
        seed = int.from_bytes(hashlib.blake2b(seed_text, digest_size=7).digest(), "little")
        keys = torch.rand(shape.numel(), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))[indices]
        if self._tokens is not None:
            sampled = smallest_keys(keys, self._tokens)
            indices, keys = indices[sampled], keys[sampled]
        rows = view[tuple(index.to(view.device) for index in torch.unravel_index(indices, shape))].flatten(1)
        dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
        rows = rows.detach().to("cpu", dtype, copy=True)
        if not torch.isfinite(rows).all():
            raise NeedsError(f"The rows that enter {name!r} hold NaN or infinity.")
        return Chunk(rows, keys, is_scale)

    def end_batch(self) -> None:
        """Pass the rows of this batch to the weights' collectors.

        Weights that shared a collector until now, and took different rows in this batch, are separated by copies of it.
        """
        shared: dict[tuple[int, tuple[int, ...]], Collector] = {}  # by the previous collector and this batch's chunks
        assigned: set[int] = set()  # identities of the collectors that this batch's rows are added to
        for name, indices in self._chunk_indices.items():
            if not self._is_whole(name):
                continue
            previous = self._collectors.get(name)
            key = (0 if previous is None else id(previous), tuple(indices))
            if key not in shared:
                first = self._chunks[indices[0]]
                collector = (
                    Collector(first.rows.shape[1], first.is_scale, self._tokens) if previous is None else previous
                )
                shared[key] = copy.deepcopy(collector) if id(collector) in assigned else collector
                assigned.add(id(collector))
            self._collectors[name] = shared[key]
        self._separate_absent(assigned)
        for (_, chunk_indices), collector in shared.items():
            for index in chunk_indices:
                collector.add(self._chunks[index])
        self._chunks, self._chunk_indices, self._parts, self._chunk_by_input = [], {}, {}, {}
        self._batch += 1

    def _separate_absent(self, assigned: set[int]) -> None:
        """Give weights that took no rows in this batch a copy of their collector from before the batch."""
        copies: dict[int, Collector] = {}
        for name, collector in self._collectors.items():
            if name not in self._chunk_indices and id(collector) in assigned:
                self._collectors[name] = copies.setdefault(id(collector), copy.deepcopy(collector))

    def _is_whole(self, name: str) -> bool:
        """Whether all parts of a packed weight took the same rows; true for weights that are not used in parts."""
        parts = self._parts.get(name)
        used = {part for chunk_parts in (parts or {}).values() for part in chunk_parts}
        if parts is not None and any(set(chunk_parts) != used for chunk_parts in parts.values()):
            self.dropped.add(name)
        return name not in self.dropped

    def finish(self) -> dict[str, Moments]:
        """Return the moments of every weight that rows entered; weights with the same rows share them. Call it once."""
        moments = {id(collector): collector.finish() for collector in set(self._collectors.values())}
        return {
            name: moments[id(collector)] for name, collector in self._collectors.items() if name not in self.dropped
        }

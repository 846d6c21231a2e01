"""The rows that enter each weight, batch by batch: drawn, shared by the weights that they enter, kept as moments."""

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
    """What entered each weight of one expert on its own data, {parameter name: moments}, as ``capture`` gives it.

    ``examples`` are the examples that were seen. ``model`` is the digest of the expert's checkpoint, or empty.
    """

    def __init__(self, moments: Mapping[str, Moments], examples: int, model: str = "") -> None:
        super().__init__(moments)
        self.examples, self.model = examples, model


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows (n, d) that one call saw, with the numbers (n,) that decide which of them are drawn; those of a scale."""

    rows: Tensor
    keys: Tensor
    scale: bool


class Collector:
    """The rows of the weights that see the same ones; at most ``tokens`` of them, in the order in which they came."""

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
        kept = smallest_keys(keys, tokens)
        self._rows, self._keys = [rows[kept]], [keys[kept]]

    def moments(self) -> Moments:
        """The moments of what is kept; nothing can be added any more."""
        if self._tokens is not None and self._rows:
            self._sample_keys(self._tokens)
            self._moments.add(self._rows.pop())
        return self._moments


def smallest_keys(keys: Tensor, count: int) -> Tensor:
    """The places of the ``count`` smallest keys, in order; all of them if there are fewer."""
    if len(keys) <= count:
        return torch.arange(len(keys))
    return keys.topk(count, largest=False).indices.sort().values


class RowStore:
    """What entered every weight of a module, gathered batch by batch."""

    def __init__(self, tokens: int | None, seed: int) -> None:
        self._tokens, self._seed, self._batch = tokens, seed, 0
        self._collectors: dict[str, Collector] = {}  # weights that always saw the same rows have the same one
        self._chunks: list[Chunk] = []  # of this batch
        self._entered: dict[str, list[int]] = {}  # places in ``_chunks``, by weight
        self._parts: dict[str, dict[int, list[tuple[int, int]]]] = {}  # of packed weights: the rows used, by chunk
        self._seen: dict[tuple[int, int, object], tuple[weakref.ref[Tensor], int]] = {}  # inputs of this batch
        self.dropped: set[str] = set()  # packed weights whose parts saw unlike rows

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
        """Take the rows of a call: ``view`` gives them from ``x``, with ``lead`` dimensions before those of a row.

        ``kind`` tells one way to make rows of ``x`` from others; ``mask`` (*lead) says which rows count.
        """
        turn = len(self._entered.get(name, ()))
        version = 0 if x.is_inference() else x._version  # what is changed in place is another input
        key = (id(x), version, (kind, part is None and turn, None if mask is None else id(mask)))
        before = self._seen.get(key)
        if before is None or before[0]() is not x:
            self._chunks.append(self._chunk(name, view(), lead, mask, kind[0] == "scale", turn))
            before = self._seen[key] = (weakref.ref(x), len(self._chunks) - 1)
        place = before[1]
        if part is not None:
            parts = self._parts.setdefault(name, {}).setdefault(place, [])
            parts.append(part)
            if len(parts) > 1:
                return
        self._entered.setdefault(name, []).append(place)

    def _chunk(self, name: str, view: Tensor, lead: int, mask: Tensor | None, scale: bool, turn: int) -> Chunk:
        shape = view.shape[:lead]
        places = torch.arange(shape.numel()) if mask is None else mask.reshape(-1).nonzero()[:, 0].cpu()
        address = json.dumps(["rows", self._seed, self._batch, turn, shape.numel()]).encode()
        seed = int.from_bytes(hashlib.blake2b(address, digest_size=7).digest(), "little")
        keys = torch.rand(shape.numel(), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))[places]
        if self._tokens is not None:
            kept = smallest_keys(keys, self._tokens)
            places, keys = places[kept], keys[kept]
        rows = view[tuple(index.to(view.device) for index in torch.unravel_index(places, shape))].flatten(1)
        dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
        rows = rows.detach().to("cpu", dtype, copy=True)
        if not torch.isfinite(rows).all():
            raise NeedsError(f"What enters {name!r} holds NaN or infinity.")
        return Chunk(rows, keys, scale)

    def end_batch(self) -> None:
        """Hand the rows of this batch to the weights' collectors; those that saw unlike rows part ways."""
        together: dict[tuple[int, tuple[int, ...]], Collector] = {}
        taken: set[int] = set()
        for name, places in self._entered.items():
            if not self._whole(name, places):
                continue
            old = self._collectors.get(name)
            key = (0 if old is None else id(old), tuple(places))
            if key not in together:
                first = self._chunks[places[0]]
                one = Collector(first.rows.shape[1], first.scale, self._tokens) if old is None else old
                together[key] = copy.deepcopy(one) if id(one) in taken else one
                taken.add(id(one))
            self._collectors[name] = together[key]
        self._part_from_absent(taken)
        for (_, seen), collector in together.items():
            for place in seen:
                collector.add(self._chunks[place])
        self._chunks, self._entered, self._parts, self._seen = [], {}, {}, {}
        self._batch += 1

    def _part_from_absent(self, taken: set[int]) -> None:
        """Weights that saw nothing in this batch keep what they saw before."""
        left: dict[int, Collector] = {}
        for name, collector in self._collectors.items():
            if name not in self._entered and id(collector) in taken:
                self._collectors[name] = left.setdefault(id(collector), copy.deepcopy(collector))

    def _whole(self, name: str, places: list[int]) -> bool:
        """Whether a packed weight saw each of its rows' inputs with all of its rows, as far as it was used in parts."""
        parts = self._parts.get(name)
        used = {part for own in (parts or {}).values() for part in own}
        if parts is not None and any(set(own) != used for own in parts.values()):
            self.dropped.add(name)
        return name not in self.dropped

    def moments(self) -> dict[str, Moments]:
        """The moments of every weight that rows entered; weights that saw the same rows have the same moments."""
        made = {id(collector): collector.moments() for collector in set(self._collectors.values())}
        return {name: made[id(one)] for name, one in self._collectors.items() if name not in self.dropped}

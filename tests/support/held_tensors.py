"""The tensors that an object holds, however deep in it, and which object holds each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor


def find_tensors(thing: Any, holder: Any = None, known: set[int] | None = None) -> Iterator[tuple[Any, Tensor]]:
    """(object, tensor) for every tensor in attributes, mappings and sequences; each object is looked into once."""
    known = set() if known is None else known
    if isinstance(thing, Tensor):
        yield holder, thing
    elif id(thing) not in known:
        known.add(id(thing))
        if isinstance(thing, Mapping):
            inside = list(thing.values())
        elif isinstance(thing, list | tuple):
            inside = list(thing)
        else:
            inside, holder = list(getattr(thing, "__dict__", {}).values()), thing
        for part in inside:
            yield from find_tensors(part, holder, known)

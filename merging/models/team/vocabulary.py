"""Tables with a row per token: the rows that models with different numbers of tokens have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from merging.base.text import first_few, plural
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import DerivedTensor, TensorSlice
from merging.models.team.tokenizers import read_tokens, tokenizer_fingerprint
from merging.models.tensor_info import TensorInfo

UNCHECKED_NOTE = (
    "{}: the order of its tokens was not checked: that needs a tokenizer.json, vocab.json or vocab.txt beside its "
    "weights and beside the pretrained model's."
)
# Least cosine of two rows of one token, and the share of rows that must reach it.
MIN_ROW_COSINE, MIN_ALIKE_SHARE = 0.5, 0.99
MAX_COMPARED_ROWS, PIECE_ROWS = 16_384, 1024  # rows of a table that are compared, and how many at a time


@dataclass(frozen=True, slots=True)
class TokenComparison:
    """How an expert numbers its tokens: ``differing`` of the ``shared`` tokens have another number.

    ``extra`` are tokens that only the expert has, with rows after those of the pretrained model.
    """

    is_alike: bool  # whether the common rows of both tables stand for the same tokens
    shared: int
    differing: int
    extra: tuple[str, ...] = ()


def common_rows(expert: Checkpoint, stored: str, pretrained: Checkpoint, name: str) -> DerivedTensor:
    """An expert's table (rows, width) with as many rows as the pretrained model's.

    The table is called ``stored`` in the expert's file, ``name`` in the pretrained model's.
    If the expert has fewer rows, the remaining rows are the pretrained model's.
    """
    info, expert_info = pretrained.infos[name], expert.infos[stored]
    width = expert_info.numel // max(expert_info.shape[0], 1)
    common = min(info.shape[0], expert_info.shape[0]) * width
    parts: tuple[TensorSlice, ...] = (TensorSlice(expert, stored, 0, common),)
    if common < info.numel:
        parts += (TensorSlice(pretrained, name, common, info.numel),)
    dtype = expert_info.dtype if len(parts) == 1 else torch.promote_types(expert_info.dtype, info.dtype)
    return DerivedTensor(TensorInfo(info.shape, dtype), parts)


def compare_tokenizers(pretrained: Path | None, expert: Path | None, rows: int) -> TokenComparison | None:
    """Compare how the tokenizers of two models number their tokens; None unless both exist.

    ``rows`` is the number of rows in the pretrained model's table.
    """
    return _compare_tokens(pretrained, expert, rows, tokenizer_fingerprint(pretrained), tokenizer_fingerprint(expert))


@lru_cache(maxsize=64)  # a large tokenizer takes a second, and pages compare at every click
def _compare_tokens(
    pretrained: Path | None, expert: Path | None, rows: int, *fingerprints: tuple[tuple[int, ...], ...]
) -> TokenComparison | None:
    pretrained_numbers, expert_numbers = read_tokens(pretrained), read_tokens(expert)
    if pretrained_numbers is None or expert_numbers is None:
        return None
    shared = pretrained_numbers.keys() & expert_numbers.keys()
    differing = sum(pretrained_numbers[token] != expert_numbers[token] for token in shared)
    extra = sorted(
        (number, token)
        for token, number in expert_numbers.items()
        if number >= rows and token not in pretrained_numbers
    )
    return TokenComparison(bool(shared) and not differing, len(shared), differing, tuple(token for _, token in extra))


def compare_rows(pretrained: Checkpoint, name: str, expert: Checkpoint, stored: str) -> TokenComparison:
    """The comparison by rows: those that both tables have and that point in different directions count as differing.

    The table is called ``name`` in the pretrained model's file, ``stored`` in the expert's. At most
    ``MAX_COMPARED_ROWS`` rows are compared, spread evenly.
    """
    width = pretrained.infos[name].shape[1]
    common = min(pretrained.infos[name].shape[0], expert.infos[stored].shape[0])
    compared = differing = 0
    for start, stop in _row_spans(common):
        pretrained_rows, expert_rows = (
            model.read_flat(tensor, start * width, stop * width).reshape(-1, width).double()
            for model, tensor in ((pretrained, name), (expert, stored))
        )
        norms = pretrained_rows.norm(dim=1) * expert_rows.norm(dim=1)
        differing += int(
            ((pretrained_rows * expert_rows).sum(dim=1) < MIN_ROW_COSINE * norms).sum()
        )  # a row of zeros, such as that of padding, has no direction
        compared += stop - start
    return TokenComparison(differing <= (1 - MIN_ALIKE_SHARE) * compared, compared, differing)


def _row_spans(rows: int) -> Iterator[tuple[int, int]]:
    """Spans [start, stop) of the rows that are compared."""
    stride = max(1, rows // MAX_COMPARED_ROWS) * PIECE_ROWS
    for start in range(0, rows, stride):
        yield start, min(start + PIECE_ROWS, rows)


def difference_text(comparison: TokenComparison) -> str:
    """A sentence without its subject, an expert: how its numbers of tokens differ from the pretrained model's."""
    if not comparison.shared:
        return "has no token in common with the pretrained model"
    return (
        f"numbers its tokens differently from the pretrained model ({comparison.differing:,} of "
        f"{comparison.shared:,} shared tokens have another id)"
    )


def describe_left_out(name: str, rows: int, expert_rows: int, comparison: TokenComparison) -> str:
    """A sentence on an expert: what happens to the rows that only one of the tables has."""
    if expert_rows < rows:
        return f"{name} has {_count_tokens(rows - expert_rows, 'fewer')}; the pretrained model's are used."
    examples = f" ({first_few(map(repr, comparison.extra))})" if comparison.extra else ""
    verb = "is" if expert_rows == rows + 1 else "are"
    return f"{name} has {_count_tokens(expert_rows - rows, 'more')}{examples}, which {verb} left out."


def _count_tokens(count: int, adjective: str) -> str:
    return plural(count, f"{adjective} token")

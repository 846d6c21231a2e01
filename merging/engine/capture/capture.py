"""Layer inputs of any torch module: its own data pass through it, and the rows that enter each weight are recorded."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from merging.base.errors import NeedsError
from merging.base.text import first_few
from merging.engine.capture.known_weights import KnownWeights
from merging.engine.capture.plain_module import check_batches, check_plain, count_examples, evaluation_mode, run_batch
from merging.engine.capture.row_store import LayerRows, RowStore
from merging.engine.capture.watcher import Watcher
from merging.engine.capture.weight_names import match_weights
from merging.models.checkpoint import Checkpoint
from merging.models.digest_cache import DIGESTS
from merging.models.families import Role
from merging.models.formats.model_sources import open_checkpoint

if TYPE_CHECKING:
    from merging.models.formats.model_sources import Source

ROLES_WITH_ROWS = (Role.LINEAR, Role.CONV, Role.PROJECTION, Role.NORM_SCALE)
log = logging.getLogger("merging")


def capture(
    model: torch.nn.Module,
    batches: Iterable[Any],
    like: Source | None = None,
    only: str = "",
    tokens: int | None = 4096,
    seed: int = 0,
) -> LayerRows:
    """The rows that enter every weight of an expert on its own data: {parameter name: moments} for ``merge``.

    Args:
        model: any torch module, of any library. It runs in evaluation mode and without gradients.
        batches: an iterable of tensors (n, ...), or of mappings that are passed as keywords. Masks ``attention_mask``
            (n, length) and ``decoder_attention_mask`` (n, length) in a mapping drop the rows of padding.
        like: the expert's checkpoint; its tensor names replace the module's where they differ.
        only: a regular expression on names of parameters, to process a large model in parts.
        tokens: the most rows per parameter, sampled from all rows that enter it; with None, all rows are used.
        seed: the seed of the sampling.

    Raises:
        NeedsError: the module is compiled, quantized or split, a parameter is not a tensor of ``like``, or there are no
            batches.
        CheckpointError: ``like`` is not a checkpoint.
    """
    check_plain(model, "capture")
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
        raise NeedsError(f"tokens is the most rows per weight, 1 or more, or None for all; got {tokens!r}.")
    expert = open_like(like)
    weights = match_weights(model, expert, only, ROLES_WITH_ROWS)
    if not weights:
        raise NeedsError(f"No weight of this module that rows enter has a name that matches only={only!r}.")
    store = RowStore(tokens, seed)
    watcher, examples = Watcher(KnownWeights(weights), store), 0
    with evaluation_mode(model), torch.no_grad():
        for batch in check_batches(model, batches):
            examples += count_examples(batch)
            watcher.begin_batch(batch)
            with watcher:
                run_batch(model, batch)
            store.end_batch()
    moments = store.finish()
    if not examples:
        raise NeedsError("There are no batches; pass some of the expert's own data.")
    if rowless := [name for name in weights if name not in moments]:
        log.warning(
            "No rows entered %d of %d weights; LOT, RegMean and CAT treat these as without data: %s.",
            len(rowless), len(weights), first_few(rowless),
        )  # fmt: skip
    return LayerRows(moments, examples, DIGESTS.digest(expert) if expert is not None else "")


def open_like(like: Source | None) -> Checkpoint | None:
    """The opened checkpoint ``like``, whose tensor names are used; None without one."""
    return None if like is None else open_checkpoint(like, "like")

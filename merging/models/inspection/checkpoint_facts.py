"""Facts about a checkpoint as plain data: format, names, architecture, tensors by role, digest."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from merging.base.errors import CheckpointError, FamilyError
from merging.base.text import printable
from merging.models import head_detection
from merging.models.architecture import Architecture, architecture_in_metadata
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import stored_model
from merging.models.digest_cache import DIGESTS
from merging.models.families import recognize_family
from merging.models.formats.adapter_checkpoint import AdapterCheckpoint
from merging.models.formats.integer_changes import IntegerChanges
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.safetensors import SafetensorsCheckpoint
from merging.models.formats.sharded_checkpoint import ShardedCheckpoint
from merging.models.formats.torch_pickle.pickled_checkpoint import PickledCheckpoint
from merging.models.model_references import strip_folders
from merging.models.network_facts import title_of
from merging.models.tensor_info import dtype_name
from merging.models.tower_names import ANCHOR, HF_ANCHOR, PROJ, group_tower_names
from merging.tasks.context import QUIET, Context

MAX_METADATA_LENGTH = 2000  # characters of a metadata value that are reported
PUBLISHED_TOWERS = {
    (768, 12, 32): "ViT-B/32", (768, 12, 16): "ViT-B/16", (1024, 24, 14): "ViT-L/14", (1280, 32, 14): "ViT-H/14",
}  # fmt: skip


def published_tower(architecture: Architecture) -> str:
    """The name of the published tower of these sizes; empty for others."""
    return PUBLISHED_TOWERS.get((architecture.width, architecture.layers, architecture.patch_size), "")


def inspect(source: str | Path | Checkpoint, *, digest: bool = True, context: Context = QUIET) -> dict[str, Any]:
    """Facts about a file, a folder or an opened checkpoint; long texts are cut, and invisible characters escaped.

    With ``digest`` every number is read for the SHA-256 of the tensors, which recipes and model cards state.

    Raises:
        CheckpointError: the source is not a checkpoint (the message says what it is), or a part of it is damaged.
        Cancelled: the user cancelled.
    """
    opened = open_checkpoint(source)
    stored = stored_model(opened)
    adapter = opened if isinstance(opened, AdapterCheckpoint) else None
    weights = adapter.weights if adapter else stored
    architecture, no_architecture = (None, "") if adapter else _read_architecture(opened)
    return {
        "file": printable(strip_folders(opened.label)),
        "format": _describe_format(weights) + (f" of {adapter.title}" if adapter else ""),
        "names": _describe_names(stored),
        **_read_family(opened),
        "architecture": architecture,
        "no_architecture": no_architecture,
        "activation": _read_activation(opened, architecture),
        "tensors": len(stored.infos),
        "numbers": sum(info.numel for info in stored.infos.values()),
        "bytes": stored.nbytes,
        "dtypes": dict(Counter(dtype_name(info.dtype) for info in stored.infos.values()).most_common()),
        "adapter": _describe_adapter(adapter) if adapter else None,
        "digest": DIGESTS.digest(opened, context.meter(opened.nbytes)) if digest else None,
        "metadata": {printable(k): printable(v, MAX_METADATA_LENGTH) for k, v in sorted(opened.metadata.items())},
        "notes": list(opened.notes),
        "cautions": list(opened.cautions),
    }


def _describe_format(checkpoint: Checkpoint) -> str:
    if isinstance(checkpoint, PickledCheckpoint):
        return checkpoint.container
    if isinstance(checkpoint, ShardedCheckpoint):
        return f"safetensors in {checkpoint.shard_count} shards"
    if isinstance(checkpoint, IntegerChanges):
        return "whole-number changes of a pretrained model"
    return "safetensors" if isinstance(checkpoint, SafetensorsCheckpoint) else "tensors in memory"


def _describe_names(stored: Checkpoint) -> str:
    """The library whose names the tensors have in the file, and their prefix; empty without a visual tower."""
    anchor = next((name for name in stored.infos if name == ANCHOR or name.endswith("." + ANCHOR)), None)
    if anchor is None:
        return ""
    if anchor.endswith(HF_ANCHOR):
        family, prefix = "Transformers", anchor.removesuffix(HF_ANCHOR)
    else:
        family, prefix = "open_clip", anchor.removesuffix(ANCHOR)
    prefix_text = f", after {printable(prefix)!r}" if prefix else ""
    return f"{family}{prefix_text}"


def _read_family(opened: Checkpoint) -> dict[str, Any]:
    """The family, tensors by role, unused text tensors ("dead_text"), and why no family fits ("no_family")."""
    unknown_facts = {"family": "", "roles": [], "dead_text": {"tensors": 0, "numbers": 0}}
    if isinstance(opened, AdapterCheckpoint):
        return unknown_facts | {"no_family": ""}
    try:
        family = recognize_family(opened.infos, opened.name, title_of(opened.infos))
    except FamilyError as error:
        head = (
            f"It is {head_detection.describe_head(opened.infos)}, not an encoder."
            if head_detection.is_head(opened.infos)
            else ""
        )
        if head or not opened.is_inferred:
            return unknown_facts | {"no_family": head or str(error)}
        return unknown_facts | {"no_family": _describe_other_network(opened), "roles": _count_roles(opened)}
    unused = {"tensors": opened.unused_text.tensors, "numbers": opened.unused_text.numel}
    return {"family": family.title, "no_family": "", "roles": _count_roles(opened), "dead_text": unused}


def _describe_other_network(opened: Checkpoint) -> str:
    """Sentences about a network other than CLIP: its kind, its number of blocks, and how to merge it."""
    try:
        blocks = {(p.tower, p.block) for p in opened.parameters if p.block is not None}
    except FamilyError as error:
        return str(error)
    return (
        f"It is {title_of(opened.infos) or 'another network'}, not a CLIP image encoder; roles and {len(blocks)} "
        "blocks are inferred from names and shapes. Methods that need no data, or data that you provide, merge it: "
        "in the app, from Python (merging.merge) and with mergescope merge. See docs/networks.md."
    )


def _count_roles(opened: Checkpoint) -> list[dict[str, Any]]:
    """Tensors and numbers by role; empty if the parameters are not known."""
    roles: dict[str, dict[str, Any]] = {}
    with suppress(FamilyError):
        for parameter in opened.parameters:
            row = roles.setdefault(str(parameter.role), {"role": str(parameter.role), "tensors": 0, "numbers": 0})
            row["tensors"] += 1
            row["numbers"] += opened.infos[parameter.name].numel
    return list(roles.values())


def _read_architecture(opened: Checkpoint) -> tuple[dict[str, Any] | None, str]:
    """(facts about the architecture, ""), or (None, the reason why it is unknown)."""
    try:
        tower = Architecture.from_checkpoint(opened)
    except (CheckpointError, ValueError) as error:
        return None, str(error)
    sizes = {
        name: getattr(tower, name) for name in ("image_size", "patch_size", "width", "layers", "heads", "embed_dim")
    }
    return {"like": published_tower(tower), **sizes, "projected": PROJ in group_tower_names(opened.infos)}, ""


def _read_activation(opened: Checkpoint, architecture: dict[str, Any] | None) -> dict[str, Any] | None:
    """The activation, and whether the metadata states it; None without an architecture."""
    if architecture is None:
        return None
    is_quick = Architecture.from_checkpoint(opened).quick_gelu
    return {"name": "quick_gelu" if is_quick else "gelu", "known": "quick_gelu" in architecture_in_metadata(opened)}


def _describe_adapter(adapter: AdapterCheckpoint) -> dict[str, Any]:
    """Ranks, layers and pretrained model of an adapter."""
    ranks = sorted({adapter.infos[c.down].shape[0] for c in adapter.changes.values() if c.down})
    replaced_count = sum(bool(change.replacement) for change in adapter.changes.values())
    bias_count = sum(bool(change.multiplier) and name.endswith(".bias") for name, change in adapter.changes.items())
    base = adapter.config.get("base_model_name_or_path")
    facts = {
        "rank": ", ".join(map(str, ranks)),
        "layers": len(adapter.changes) - replaced_count - bias_count,
        "replaced": replaced_count,
    }
    return facts | ({"base": printable(strip_folders(base))} if isinstance(base, str) and base else {})

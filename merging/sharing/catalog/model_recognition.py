"""Recognition of an entry by its content, without reading all weights: a model, an adapter, a head, or unreadable."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from merging.base.errors import CheckpointError, MergingError
from merging.base.files.short_digest import short_digest
from merging.base.text import printable
from merging.models.checkpoint import Checkpoint
from merging.models.formats.adapter_checkpoint import AdapterCheckpoint
from merging.models.head_detection import is_head
from merging.models.inspection.checkpoint_facts import inspect
from merging.models.inspection.distance import Distance, measure_distances
from merging.models.inspection.model_sample import ModelSample, in_blocks, sample_model
from merging.models.tower_names import group_tower_names
from merging.sharing.catalog.model_listing import CatalogEntry

MODEL, ADAPTER, HEAD, UNKNOWN, UNREADABLE = "model", "adapter", "head", "other", "unreadable"
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """Facts about an entry. Models that may fit together have the same ``signature``; it is empty if unknown."""

    kind: str
    problem: str = ""  # why the entry cannot be read, or why it does not belong to a known family
    format: str = ""
    names: str = ""  # the library whose tensor names it has
    architecture: str = ""
    activation: str = ""
    dtype: str = ""
    nbytes: int = 0
    tensors: int = 0
    base: str = ""  # the base model that an adapter names
    signature: str = ""
    notes: tuple[str, ...] = ()
    state: tuple[int, ...] | None = None  # the state of the file, a key of the digest cache
    sample: ModelSample | None = None  # some of its weights, for distances; only of models

    def distance(self, other: ModelFacts) -> Distance | None:
        """The distance of these weights from the other's; None if the two cannot be compared."""
        if self.signature != other.signature or self.sample is None or other.sample is None:
            return None
        distance = self.sample.distance(other.sample)
        return None if math.isnan(distance.ratio) else distance


def recognize_model(entry: CatalogEntry) -> ModelFacts:
    """The facts about an entry; never raises."""
    if entry.problem:
        return ModelFacts(UNREADABLE, problem=f"{printable(entry.name)} {entry.problem}.")
    try:
        return _read_facts(entry)
    except MergingError as error:
        return ModelFacts(UNREADABLE, problem=str(error))
    except OSError as error:
        return ModelFacts(UNREADABLE, problem=f"{printable(entry.name)} cannot be read ({error.strerror}).")
    except Exception as error:  # one odd file must not hide the list of all others
        log.warning("%s could not be inspected", printable(entry.listed_path), exc_info=True)
        return ModelFacts(
            UNREADABLE, problem=f"{printable(entry.name)} could not be inspected ({type(error).__name__})."
        )


def _read_facts(entry: CatalogEntry) -> ModelFacts:
    checkpoint = entry.open()
    facts = inspect(checkpoint, digest=False)
    kind = _recognize_kind(checkpoint, facts)
    return ModelFacts(
        kind=kind,
        problem=facts.get("no_family", "") if kind == UNKNOWN or (kind == MODEL and not checkpoint.network) else "",
        format=facts["format"],
        names=facts["names"],
        architecture=_describe_architecture(checkpoint, facts, kind),
        activation=_describe_activation(facts),
        dtype=", ".join(facts["dtypes"]),
        nbytes=facts["bytes"],
        tensors=facts["tensors"],
        base=(facts["adapter"] or {}).get("base", ""),
        signature=_compute_signature(checkpoint, facts, kind),
        notes=(*facts["notes"], *facts["cautions"]),
        state=checkpoint.file_fingerprint(),
        sample=sample_model(checkpoint) if kind == MODEL else None,
    )


def _recognize_kind(checkpoint: Checkpoint, facts: Mapping[str, Any]) -> str:
    if isinstance(checkpoint, AdapterCheckpoint):
        return ADAPTER
    if facts["family"] or facts["architecture"]:
        return MODEL
    if is_head(checkpoint.infos):
        return HEAD
    return MODEL if checkpoint.network and facts["roles"] else UNKNOWN


def _describe_architecture(checkpoint: Checkpoint, facts: Mapping[str, Any], kind: str) -> str:
    """The architecture in a few words."""
    if kind == HEAD:
        rows, width = next(info.shape for info in checkpoint.infos.values() if len(info.shape) == 2)
        return f"{rows} classes, {width} features"
    if kind == ADAPTER:
        rank = facts["adapter"]["rank"]
        return f"LoRA, rank {rank}" if rank else "(IA)³"
    if checkpoint.network:
        blocks = {p.section for p in in_blocks(checkpoint).values()} if kind == MODEL else ()
        return f"{checkpoint.network}, {len(blocks)} blocks" if blocks else ""
    sizes = facts["architecture"] or _read_sizes(checkpoint)
    if not sizes:
        return ""
    images = f"{sizes['image_size']} px"
    if sizes.get("like"):
        return f"{sizes['like']}, {images}"
    return f"{sizes['layers']} × {sizes['width']}, patch {sizes['patch_size']}, {images}"


def _read_sizes(checkpoint: Checkpoint) -> dict[str, int]:
    """The sizes that follow from the shapes of a visual tower; empty if there is none."""
    names = group_tower_names(checkpoint.infos)
    try:
        width, _, patch, _ = checkpoint.infos[names["conv1.weight"][0]].shape
        tokens = checkpoint.infos[names["positional_embedding"][0]].shape[0]
    except (KeyError, ValueError, IndexError):
        return {}
    layers = len({name.split(".")[2] for name in names if name.startswith("transformer.resblocks.")})
    return {"image_size": round(max(tokens - 1, 0) ** 0.5) * patch, "patch_size": patch, "width": width,
            "layers": layers}  # fmt: skip


def _describe_activation(facts: Mapping[str, Any]) -> str:
    activation = facts["activation"]
    if activation is None:
        return ""
    return str(activation["name"]) if activation["known"] else f"{activation['name']} (assumed)"


def _compute_signature(checkpoint: Checkpoint, facts: Mapping[str, Any], kind: str) -> str:
    if kind == ADAPTER:
        return f"adapter of {facts['adapter'].get('base', '')}"
    if kind == MODEL and checkpoint.network:
        block_shapes = sorted((at, checkpoint.infos[p.name].shape) for at, p in in_blocks(checkpoint).items())
        return f"{checkpoint.network} {short_digest(json.dumps(block_shapes))}"
    return " ".join(map(str, _read_sizes(checkpoint).values())) if kind == MODEL else ""


def measure_exact_distance(model: CatalogEntry, base: CatalogEntry) -> Distance:
    """The distance of a model from a base over all scalars.

    Raises:
        MergingError: one of the two can no longer be read.
    """
    base_checkpoint = base.open()
    model_checkpoint = model.open(base_checkpoint)
    return measure_distances(
        base_checkpoint, {model.name: model_checkpoint}, base_checkpoint.parameters, sampled=False
    )[model.name]


def adapter_fits(adapter: CatalogEntry, pretrained: CatalogEntry) -> bool:
    """Whether the shapes of an adapter fit a model."""
    try:
        adapter.open(pretrained.open())
    except (CheckpointError, OSError):
        return False
    return True

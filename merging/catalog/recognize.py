"""What an item of a folder is, by its content, weights unread: a model, an adapter, a head, or why it is none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from merging.catalog.scan import CatalogEntry
from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.tower_names import tower
from merging.errors import CheckpointError, MergingError
from merging.formats.lora import AdapterCheckpoint
from merging.formats.opening import open_checkpoint
from merging.inspection.checkpoint_facts import inspect
from merging.inspection.distance import ALIKE, FAR
from merging.text import printable

MODEL, ADAPTER, HEAD, UNKNOWN, UNREADABLE = "model", "adapter", "head", "other", "unreadable"
DRAWN = 256  # numbers of each tensor that two models are told apart by
FEW = 4  # tensors that a head has at most
# Tensors that every fine-tuning moves a little and every other model has otherwise.
TELLING = ("conv1.weight", "positional_embedding", "ln_post.weight")
TELLING_PARTS = ("attn.in_proj_weight", "attn.out_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """What was found. ``signature`` is the same for models that may fit together; empty where that cannot be told."""

    kind: str
    problem: str = ""  # why it cannot be read, or why it is of no known family
    format: str = ""
    names: str = ""
    architecture: str = ""
    activation: str = ""
    dtype: str = ""
    nbytes: int = 0
    tensors: int = 0
    base: str = ""  # what an adapter says it is for
    signature: str = ""
    notes: tuple[str, ...] = ()
    state: tuple[int, ...] | None = None  # of the file, as digests are known by
    drawn: Tensor | None = None  # some of its numbers (n,), float64

    def distance(self, other: ModelFacts) -> float | None:
        """By how much the other's numbers were changed to get these, as a share; None if neither came of the other."""
        if self.signature != other.signature or self.drawn is None or other.drawn is None:
            return None
        if self.drawn.shape != other.drawn.shape:
            return None
        size, own = float(other.drawn.norm()), float(self.drawn.norm())
        ratio = float((self.drawn - other.drawn).norm()) / size if size else float("inf")
        cosine = float(self.drawn @ other.drawn) / (size * own) if size * own else 0.0
        return ratio if ratio <= FAR and cosine >= ALIKE else None


def look(item: CatalogEntry) -> ModelFacts:
    """What an item is; never raises."""
    if item.problem:
        return ModelFacts(UNREADABLE, problem=f"{printable(item.name)} {item.problem}.")
    try:
        return _look(item)
    except MergingError as error:
        return ModelFacts(UNREADABLE, problem=str(error))
    except OSError as error:
        return ModelFacts(UNREADABLE, problem=f"{printable(item.name)} cannot be read ({error.strerror}).")
    except Exception as error:  # one odd file must not take the list of all others away
        log.warning("%s could not be looked into", printable(item.place), exc_info=True)
        return ModelFacts(
            UNREADABLE, problem=f"{printable(item.name)} could not be looked into ({type(error).__name__})."
        )


def _look(item: CatalogEntry) -> ModelFacts:
    opened = open_checkpoint(item.reference, item.name)
    facts = inspect(item.reference, digest=False)
    kind = _kind(opened, facts)
    return ModelFacts(
        kind=kind,
        problem=facts.get("no_family", "") if kind in {MODEL, UNKNOWN} else "",
        format=facts["format"],
        names=facts["names"],
        architecture=_architecture(opened, facts, kind),
        activation=_activation(facts),
        dtype=", ".join(facts["dtypes"]),
        nbytes=facts["bytes"],
        tensors=facts["tensors"],
        base=(facts["adapter"] or {}).get("base", ""),
        signature=_signature(opened, facts, kind),
        notes=(*facts["notes"], *facts["cautions"]),
        state=opened.state(),
        drawn=_drawn(opened) if kind == MODEL else None,
    )


def _kind(opened: Checkpoint, facts: Mapping[str, Any]) -> str:
    if isinstance(opened, AdapterCheckpoint):
        return ADAPTER
    if facts["family"] or facts["architecture"]:
        return MODEL
    matrices = [i for name, i in opened.infos.items() if name.split(".")[-1] == "weight" and len(i.shape) == 2]
    return HEAD if len(matrices) == 1 and len(opened.infos) <= FEW else UNKNOWN


def _architecture(opened: Checkpoint, facts: Mapping[str, Any], kind: str) -> str:
    """In a few words."""
    if kind == HEAD:
        rows, width = next(info.shape for info in opened.infos.values() if len(info.shape) == 2)
        return f"{rows} classes, {width} features"
    if kind == ADAPTER:
        return f"LoRA, rank {facts['adapter']['rank']}"
    sizes = facts["architecture"] or _sizes(opened)
    if not sizes:
        return ""
    images = f"{sizes['image_size']} px"
    if sizes.get("like"):
        return f"{sizes['like']}, {images}"
    return f"{sizes['layers']} × {sizes['width']}, patch {sizes['patch_size']}, {images}"


def _sizes(opened: Checkpoint) -> dict[str, int]:
    """What the shapes of a visual tower say; empty if there is none."""
    here = tower(opened.infos)
    try:
        width, _, patch, _ = opened.infos[here["conv1.weight"][0]].shape
        tokens = opened.infos[here["positional_embedding"][0]].shape[0]
    except (KeyError, ValueError, IndexError):
        return {}
    layers = len({name.split(".")[2] for name in here if name.startswith("transformer.resblocks.")})
    return {"image_size": round(max(tokens - 1, 0) ** 0.5) * patch, "patch_size": patch, "width": width,
            "layers": layers}  # fmt: skip


def _activation(facts: Mapping[str, Any]) -> str:
    said = facts["activation"]
    return "" if said is None else said["name"] if said["known"] else f"{said['name']} (assumed)"


def _signature(opened: Checkpoint, facts: Mapping[str, Any], kind: str) -> str:
    if kind == ADAPTER:
        return f"adapter of {facts['adapter'].get('base', '')}"
    return " ".join(map(str, _sizes(opened).values())) if kind == MODEL else ""


def _drawn(opened: Checkpoint) -> Tensor | None:
    """Some numbers of the tower; None if they cannot be compared."""
    here = tower(opened.infos)
    layers = sorted({name.split(".")[2] for name in here if name.startswith("transformer.resblocks.")}, key=int)
    wanted = list(TELLING)
    for layer in (layers[0], layers[len(layers) // 2]) if layers else ():
        wanted += [f"transformer.resblocks.{layer}.{part}" for part in TELLING_PARTS]
    pieces = []
    for name in wanted:
        stored = here.get(name, ())
        if len(stored) != 1 or not opened.infos[stored[0]].dtype.is_floating_point:
            return None
        values = opened.read_flat(stored[0], 0, min(DRAWN, opened.infos[stored[0]].numel))
        pieces.append(values.to(torch.float64).nan_to_num(0.0, 0.0, 0.0))
    return torch.cat(pieces)


def applies(adapter: CatalogEntry, pretrained: CatalogEntry) -> bool:
    """Whether an adapter is of such a model, by the shapes of both."""
    try:
        below = open_checkpoint(pretrained.reference, pretrained.name)
        open_checkpoint(adapter.reference, adapter.name, like=below)
    except (CheckpointError, OSError):
        return False
    return True

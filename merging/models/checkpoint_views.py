"""One model under the names of open_clip or Transformers: the same numbers, packed, split or transposed.

Nothing is converted in advance: a ``CheckpointView`` reads tensors of another checkpoint on demand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.errors import CheckpointError
from merging.base.text import first_few, plural
from merging.models.checkpoint import Checkpoint, Spans
from merging.models.content_digest import BytesCallback, ignore_bytes
from merging.models.families import HUGGING_FACE, NOT_MERGED, QKV, Role
from merging.models.tensor_info import TensorInfo
from merging.models.tower_names import (
    ANCHOR,
    HF_ANCHOR,
    HF_PREFIX,
    PROJ,
    VISUAL,
    group_tower_names,
    hugging_face_names,
    is_clip,
    is_transposed_name,
)

PROJECTION_NAMES = re.compile(r"(?:^|\.)(?:proj|visual_projection)(?:\.weight)?$")  # the names of an output projection

# --- a checkpoint under other names ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """Scalars [start, stop) of a tensor of another checkpoint, or the whole tensor transposed."""

    source: Checkpoint
    name: str
    start: int
    stop: int
    transposed: bool = False

    @classmethod
    def whole(cls, source: Checkpoint, name: str, *, transposed: bool = False) -> TensorSlice:
        """The slice that is a whole tensor."""
        return cls(source, name, 0, source.infos[name].numel, transposed)

    def read(self, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of the slice, flat (n,): n = stop - start, in the stored dtype."""
        if self.transposed:
            return self.source.read(self.name).T.reshape(-1)[start:stop]
        return self.source.read_flat(self.name, self.start + start, self.start + stop)


@dataclass(frozen=True, slots=True)
class DerivedTensor:
    """A tensor made of slices, one below the other."""

    info: TensorInfo
    parts: tuple[TensorSlice, ...]


class CheckpointView(Checkpoint):
    """Tensors of another checkpoint, ``inner``, under other names, read from it on demand.

    With ``keeps_digest`` the view has the digest of that checkpoint.
    """

    def __init__(self, inner: Checkpoint, tensors: Mapping[str, DerivedTensor], *, keeps_digest: bool) -> None:
        self.name, self.label, self.metadata, self.family = inner.name, inner.label, inner.metadata, inner.family
        self.notes, self.cautions, self.folder = inner.notes, inner.cautions, inner.folder
        self.adds_changes = inner.adds_changes
        self.inner, self._tensors, self._keeps_digest = inner, dict(tensors), keeps_digest
        self.infos = {name: derived.info for name, derived in tensors.items()}

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor, flat (n,): n = stop - start, joined from its slices."""
        pieces: list[Tensor] = []
        offset = 0  # of the slice in the tensor
        for part in self._tensors[name].parts:
            size = part.stop - part.start
            first, last = max(start, offset), min(stop, offset + size)
            if first < last:
                pieces.append(part.read(first - offset, last - offset))
            offset += size
        if not pieces:  # an empty result has the tensor's dtype, too
            pieces.append(self._tensors[name].parts[0].read(0, 0))
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0]

    def read_spans(self, name: str, spans: Spans) -> Tensor:
        """The scalars in the spans of a tensor, joined and flat (n,)."""
        parts = self._tensors[name].parts
        if len(parts) > 1 or parts[0].transposed:
            return super().read_spans(name, spans)
        (part,) = parts
        source_spans = tuple((part.start + start, part.start + stop) for start, stop in spans)
        return part.source.read_spans(part.name, source_spans)

    def file_fingerprint(self) -> tuple[int, ...] | None:
        return self.inner.file_fingerprint()

    def content_digest(self, on_bytes: BytesCallback = ignore_bytes) -> str:
        if self._keeps_digest:
            return self.inner.content_digest(on_bytes)
        return super().content_digest(on_bytes)

    def rename_as_in_file(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state dict of tensors (*S) under this view's names, under the names and in the shapes of its file.

        The order is the file's.
        """
        tensors: dict[str, Tensor] = {}
        for name, derived in self._tensors.items():
            tensor, offset = state[name], 0
            for part in derived.parts:
                shape = part.source.infos[part.name].shape
                size = part.stop - part.start
                piece = tensor.T if part.transposed else tensor.reshape(-1)[offset : offset + size]
                tensors[part.name] = piece.reshape(shape).contiguous()
                offset += size
        return self.inner.rename_as_in_file({name: tensors[name] for name in self.inner.infos if name in tensors})


def stored_model(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint under the names in its file, below all views of it."""
    while isinstance(checkpoint, CheckpointView):
        checkpoint = checkpoint.inner
    return checkpoint


def identity_view(checkpoint: Checkpoint) -> CheckpointView:
    """A view of all tensors under their own names, whose metadata can be changed."""
    return CheckpointView(
        checkpoint, rename_tensors(checkpoint, {name: name for name in checkpoint.infos}), keeps_digest=True
    )


def rename_tensors(inner: Checkpoint, names: Mapping[str, str]) -> dict[str, DerivedTensor]:
    """{new name: tensor} from {new name: old name}."""
    return {
        new_name: DerivedTensor(inner.infos[old_name], (TensorSlice.whole(inner, old_name),))
        for new_name, old_name in names.items()
    }


def _pack_qkv(inner: Checkpoint, stored: Sequence[str]) -> DerivedTensor:
    """q, k and v, each (rows, ...), packed into one tensor (3 · rows, ...)."""
    infos = [inner.infos[name] for name in stored]
    if len({(info.shape[1:], info.dtype) for info in infos}) > 1 or not all(info.shape for info in infos):
        raise CheckpointError(f"{inner.name}: {first_few(stored)} differ in width or type and cannot be one tensor.")
    shape = (sum(info.shape[0] for info in infos), *infos[0].shape[1:])
    return DerivedTensor(TensorInfo(shape, infos[0].dtype), tuple(TensorSlice.whole(inner, name) for name in stored))


def transposed_matrix(inner: Checkpoint, stored: str) -> DerivedTensor:
    """A matrix (m, n) as its transpose (n, m). Raises CheckpointError if the tensor is not a matrix."""
    info = inner.infos[stored]
    if len(info.shape) != 2:
        raise CheckpointError(f"{inner.name}: {stored!r} of shape {list(info.shape)} is not a matrix.")
    return DerivedTensor(TensorInfo(info.shape[::-1], info.dtype), (TensorSlice.whole(inner, stored, transposed=True),))


def _split_qkv(inner: Checkpoint, stored: str) -> tuple[DerivedTensor, ...] | None:
    """q, k and v as thirds of one tensor; None if its rows cannot be divided by three."""
    info = inner.infos[stored]
    if not info.shape or info.shape[0] % len(QKV):
        return None
    third = TensorInfo((info.shape[0] // len(QKV), *info.shape[1:]), info.dtype)
    size = third.numel
    return tuple(DerivedTensor(third, (TensorSlice(inner, stored, i * size, (i + 1) * size),)) for i in range(len(QKV)))


# --- files under canonical names -------------------------------------------------------------------------------------


def to_open_clip_names(checkpoint: Checkpoint, extract_tower: bool = False) -> Checkpoint:
    """A checkpoint under open_clip's names, without prefixes of trainers; unchanged if it has these names already.

    A checkpoint without a visual tower, or with a tower that is not CLIP's, keeps its names, except for a prefix of
    parallel training. A CLIP tower that is a small part of its checkpoint is extracted only with ``extract_tower``.

    Raises:
        CheckpointError: the checkpoint holds several visual towers.
    """
    names = list(checkpoint.infos)
    # A tower and the prefix of its names are recognized by its class embedding, the anchor.
    anchors = [name for name in names if name == ANCHOR or name.endswith("." + ANCHOR)]
    if len(anchors) > 1:
        raise CheckpointError(
            f"{checkpoint.name} holds several visual towers: {first_few(anchors)}. Save one by itself."
        )
    if not anchors:
        return _strip_module(checkpoint)
    anchor = anchors[0]
    if anchor.endswith(HF_ANCHOR):
        tower_prefix = anchor.removesuffix(HF_ANCHOR)
        model_prefix = tower_prefix.removesuffix(HF_PREFIX)
        if not is_clip(checkpoint.infos, model_prefix, tower_prefix, inside_other=extract_tower):
            return checkpoint
        return _convert_hugging_face(checkpoint, model_prefix)
    prefix = anchor.removesuffix(ANCHOR)
    if prefix == VISUAL or prefix.endswith("." + VISUAL):
        prefix = prefix.removesuffix(VISUAL)
    return _strip_prefix(checkpoint, prefix) if prefix else checkpoint


def _strip_module(checkpoint: Checkpoint) -> Checkpoint:
    """A model without a visual tower, with the prefix of parallel training removed."""
    if not all(name.startswith("module.") and len(name) > len("module.") for name in checkpoint.infos):
        return checkpoint
    return _strip_prefix(checkpoint, "module.")


def _strip_prefix(checkpoint: Checkpoint, prefix: str) -> Checkpoint:
    """The tensors whose names begin with the prefix, without it."""
    inside = {name.removeprefix(prefix): name for name in checkpoint.infos if name.startswith(prefix)}
    view = CheckpointView(checkpoint, rename_tensors(checkpoint, inside), keeps_digest=False)
    view.cautions += (f"The names begin with {prefix!r}, which was removed.",)
    outside = [name for name in checkpoint.infos if not name.startswith(prefix)]
    if outside:
        ignored = plural(len(outside), "tensor does not begin with it and was", "tensors do not begin with it and were")
        view.cautions += (f"{ignored} ignored: {_name_ignored(outside)}.",)
    return view


def _convert_hugging_face(checkpoint: Checkpoint, top: str) -> Checkpoint:
    """Transformers' vision model under open_clip's names. ``top`` is the prefix of the model's names."""
    stored_names: dict[str, str] = {}  # name without ``top`` -> name in the file
    notes: dict[str, list[str]] = {"text": [], "ids": [], "unknown": []}
    for name in checkpoint.infos:
        short = name.removeprefix(top) if name.startswith(top) else ""
        match = HUGGING_FACE.classify(short)
        if match and match[1].role != Role.BUFFER:
            stored_names[short] = name
        elif match and match[1].section == NOT_MERGED and match[1].part == "position_ids":
            notes["ids"].append(name)
        else:
            is_text = match is not None or short.startswith(("text_model.", "text_projection."))
            notes["text" if is_text else "unknown"].append(name)
    tensors: dict[str, DerivedTensor] = {}
    for name, short_names in group_tower_names(stored_names).items():
        stored = [stored_names[short] for short in short_names]
        if len(stored) > 1:
            tensors[VISUAL + name] = _pack_qkv(checkpoint, stored)
        elif name == PROJ:
            tensors[VISUAL + name] = transposed_matrix(checkpoint, stored[0])
        else:
            tensors |= rename_tensors(checkpoint, {VISUAL + name: stored[0]})
    used = {part.name for derived in tensors.values() for part in derived.parts}
    notes["unknown"] += [name for name in stored_names.values() if name not in used]
    view = CheckpointView(checkpoint, tensors, keeps_digest=False)
    view.notes += tuple(_list_naming_notes(top, notes))
    if notes["unknown"]:
        unknown_names = notes["unknown"]
        unknown_count = plural(len(unknown_names), "tensor is", "tensors are")
        view.cautions += (f"{unknown_count} not part of the visual tower; ignored: {_name_ignored(unknown_names)}.",)
    return view


def _name_ignored(ignored_names: Iterable[str]) -> str:
    """The first names of ignored tensors; output projections come first."""
    names = list(ignored_names)
    projections = [name for name in names if PROJECTION_NAMES.search(name)]
    return first_few((*projections, *(name for name in names if name not in projections)))


def _list_naming_notes(top: str, notes: Mapping[str, list[str]]) -> Iterable[str]:
    """Sentences on the changes of names; ``notes`` has the names of the ignored tensors by kind."""
    yield "Transformers' names were changed to open_clip's, with q, k and v packed."
    if top:
        yield f"The names begin with {top!r}, which was removed."
    if notes["text"]:
        yield f"{plural(len(notes['text']), 'tensor of the text side was', 'tensors of the text side were')} ignored."
    if notes["ids"]:
        yield f"{first_few(notes['ids'])} was dropped: it holds the numbers of positions, not weights."


# --- experts under the pretrained model's names ----------------------------------------------------------------------


def rename_to_pretrained(pretrained: Checkpoint, expert: Checkpoint) -> Checkpoint:
    """The expert with its tensors under the pretrained model's names; unchanged if it has these names already.

    Tensors that the pretrained model does not have keep their names. Transformers' plain vision model has no output
    projection; such an expert gets the projection of the pretrained model.
    """
    expert = expert.apply_to(pretrained)
    targets = group_tower_names(pretrained.infos)
    if all(name in expert.infos for stored in targets.values() for name in stored):
        return expert
    expert_names = group_tower_names(expert.infos)
    if not set(targets) & set(expert_names):
        return expert
    tensors: dict[str, DerivedTensor] = {}
    for name, stored in targets.items():
        tensors |= rename_tensor(name, stored, expert, expert_names.get(name, ()))
    used = {part.name for derived in tensors.values() for part in derived.parts}
    tensors |= rename_tensors(expert, {name: name for name in expert.infos if name not in used and name not in tensors})
    projection_note: tuple[str, ...] = ()
    if PROJ in targets and PROJ not in expert_names and _may_lack_projection(expert):
        tensors |= rename_tensors(pretrained, {targets[PROJ][0]: targets[PROJ][0]})
        projection_note = (f"It has no output projection; the pretrained model's {targets[PROJ][0]} is used.",)
    view = CheckpointView(expert, tensors, keeps_digest=True)
    view.notes += projection_note
    return view


def _may_lack_projection(expert: Checkpoint) -> bool:
    """Whether an expert has Transformers' names, so that a missing output projection is normal."""
    names = expert.inner.infos if isinstance(expert, CheckpointView) else expert.infos
    return any(name.endswith(HF_ANCHOR) for name in names)


def rename_tensor(
    name: str, new_names: Sequence[str], expert: Checkpoint, stored_names: Sequence[str]
) -> dict[str, DerivedTensor]:
    """{new name: tensor} of one tensor of the tower, which the expert stores under the names ``stored_names``.

    The result is empty if the expert lacks the tensor.
    """
    if not stored_names:
        return {}
    if len(new_names) == len(stored_names):
        if name == PROJ and is_transposed_name(new_names[0]) != is_transposed_name(stored_names[0]):
            return {new_names[0]: transposed_matrix(expert, stored_names[0])}
        return rename_tensors(expert, dict(zip(new_names, stored_names, strict=True)))
    if len(new_names) == 1:
        return {new_names[0]: _pack_qkv(expert, stored_names)}
    thirds = _split_qkv(expert, stored_names[0])
    return dict(zip(new_names, thirds, strict=True)) if thirds else {}


# --- whole towers ----------------------------------------------------------------------------------------------------


def convert_naming(checkpoint: Checkpoint, naming: str) -> CheckpointView:
    """A model's visual tower under the names of "hf" (Transformers), "open_clip" or "open_clip_tower" (no prefix).

    Raises:
        CheckpointError: the naming is unknown, or the checkpoint holds no visual tower.
    """
    if naming not in {"hf", "open_clip", "open_clip_tower"}:
        raise CheckpointError(f"A naming is 'hf', 'open_clip' or 'open_clip_tower'; got {naming!r}.")
    if checkpoint.is_inferred:
        raise CheckpointError(
            f"{checkpoint.name} is not a CLIP image encoder, and only these have names in both libraries. The merge "
            "of another network is model.safetensors in the folder of its run, or the result of merging.merge."
        )
    stored_names = group_tower_names(checkpoint.infos)
    if ANCHOR not in stored_names:
        raise CheckpointError(f"{checkpoint.name} holds no visual tower.")
    prefix = VISUAL if naming == "open_clip" else ""
    tensors: dict[str, DerivedTensor] = {}
    for name, stored in stored_names.items():
        new_names = hugging_face_names(name) if naming == "hf" else (prefix + name,)
        tensors |= rename_tensor(name, new_names, checkpoint, stored)
    return CheckpointView(checkpoint, tensors, keeps_digest=False)

"""Recognizes classification heads, which published task vectors store in files beside the encoders."""

from __future__ import annotations

import re
from collections.abc import Mapping

from merging.base.errors import CheckpointError
from merging.base.text import printable
from merging.models.checkpoint import Checkpoint
from merging.models.families import FAMILIES
from merging.models.model_references import locate, strip_folders
from merging.models.tensor_info import TensorInfo

HEAD_NAME = re.compile(r"head[-_](.+)", re.IGNORECASE)  # the name of a file without its suffix; the group is the task
MAX_HEAD_TENSORS = 4  # of a head


def is_head(infos: Mapping[str, TensorInfo]) -> bool:
    """Whether the tensors are a classification head: one matrix, few other tensors, and no tensor of a tower."""
    if len(infos) > MAX_HEAD_TENSORS or any(family.classify(name) for family in FAMILIES for name in infos):
        return False
    return len(_list_matrix_shapes(infos)) == 1


def _list_matrix_shapes(infos: Mapping[str, TensorInfo]) -> list[tuple[int, ...]]:
    """Shapes of the matrices called "weight"."""
    return [info.shape for name, info in infos.items() if name.split(".")[-1] == "weight" and len(info.shape) == 2]


def describe_head(infos: Mapping[str, TensorInfo]) -> str:
    """A head in words, with its numbers of classes and features."""
    ((rows, width),) = _list_matrix_shapes(infos)
    return f"a classification head of {rows} classes and {width} features"


def refuse_head(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint itself, if it is not a classification head.

    Raises:
        CheckpointError: it is a classification head.
    """
    if not is_head(checkpoint.infos):
        return checkpoint
    subject = f"{checkpoint.name} is"
    if checkpoint.file_fingerprint() is not None:  # it is in a file
        kind = "holds only" if locate(checkpoint.label).is_dir() else "is"
        subject = f"{checkpoint.name}: {printable(strip_folders(checkpoint.label))} {kind}"
    raise CheckpointError(
        f"{subject} {describe_head(checkpoint.infos)}, not an image encoder. Give the encoder that it belongs to, "
        "such as finetuned.pt (of an expert) or zeroshot.pt (pretrained); heads belong to the tasks of a benchmark "
        "(benchmark make)."
    )

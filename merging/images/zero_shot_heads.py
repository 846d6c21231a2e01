"""Zero-shot heads: classifiers built from class names and prompts, or read from released files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as nnf
from torch import Tensor

from merging.base.devices import is_host
from merging.base.errors import TaskError
from merging.base.text import printable
from merging.base.threads import run_in_threads
from merging.images.text_encoder import TextTower
from merging.models.checkpoint import Checkpoint
from merging.models.formats.format_recognition import open_path
from merging.tasks.context import QUIET, Context

DEFAULT_TEMPLATES = ("a photo of a {}.",)  # for data sets without prompts of their own
GPU_BATCH, CPU_BATCH = 256, 64  # prompts per forward pass, on an accelerator and on one core of a CPU
LENGTH_TOLERANCE = 0.01  # largest relative difference between the lengths of a head's rows
UNIT_LENGTHS = (0.98, 1.02)  # lengths of rows that count as 1
MIN_SCALED_LENGTH = 2.0  # the smallest length of rows that counts as a logit scale
Tokenize = Callable[[list[str], int], Tensor]  # (prompts, context) -> tokens (n, context)


@dataclass(frozen=True, eq=False)
class Head:
    """A frozen classifier: unit rows (classes, embed_dim), float32, and the logit scale, which multiplies cosines."""

    rows: Tensor
    scale: float

    @property
    def weight(self) -> Tensor:
        """The matrix (classes, embed_dim) that maps unit features to logits, as in released heads."""
        return self.rows * self.scale


def fill_template(template: str, name: str) -> str:
    """The prompt of a template and a class name. Raises TaskError if the template has no ``{}``."""
    if "{}" not in template:
        raise TaskError(f"The template {printable(template, 60)!r} has no {{}} for the class name.")
    return template.replace("{}", name)


def build_head(
    tower: TextTower,
    class_names: Sequence[str],
    templates: Sequence[str] = DEFAULT_TEMPLATES,
    *,
    tokenize: Tokenize | None = None,
    context: Context = QUIET,
) -> Head:
    """A head from a text tower: for each class the mean direction of its prompts, rows (classes, embed_dim).

    Args:
        tokenize: maps prompts and the context's length to tokens; default: open_clip's, which must be installed.

    Raises:
        TaskError: there are no classes or templates, a template has no ``{}``, or open_clip is not installed.
    """
    if not class_names or not templates:
        raise TaskError("A head needs at least one class name and one template.")
    tokenize = tokenize or tokenize_for_clip
    prompts = [fill_template(template, name) for name in class_names for template in templates]
    meter = context.meter(len(prompts))
    device, features = tower.embedding.device, list[Tensor]()
    size = CPU_BATCH if is_host(device) else GPU_BATCH
    batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
    passes = (partial(_encode_prompts, tower, tokenize(batch, tower.context)) for batch in batches)
    with run_in_threads(passes, device, tower.forward_bytes(size)) as results:
        for batch, directions in zip(batches, results, strict=True):
            features.append(directions)
            meter.advance(len(batch), "Building heads", batch[-1][:60])
        means = torch.cat(features).reshape(len(class_names), len(templates), -1).mean(dim=1)
        return Head(nnf.normalize(means, dim=-1).clone(), tower.logit_scale)


def _encode_prompts(tower: TextTower, tokens: Tensor) -> Tensor:
    """Unit features (n, embed_dim) of tokenized prompts (n, context), on the CPU."""
    with torch.inference_mode():
        return nnf.normalize(tower(tokens), dim=-1).cpu()


def tokenize_for_clip(prompts: list[str], context: int) -> Tensor:
    """Tokens (n, context) by open_clip's tokenizer, which contains CLIP's vocabulary.

    Raises:
        TaskError: open_clip is not installed.
    """
    from merging.base.open_clip_import import prepare_torchvision

    prepare_torchvision()
    try:
        from open_clip.tokenizer import SimpleTokenizer
    except ImportError:
        raise TaskError(
            "Building heads from class names needs CLIP's vocabulary, which comes with open_clip: "
            "`pip install open_clip_torch`. Ready-made heads (head_*.pt) do not need it."
        ) from None
    tokens: Tensor = SimpleTokenizer(context_length=context)(prompts)
    return tokens


def read_head(path: Path, classes: int | None, embed_dim: int, scale: float = 100.0) -> Head:
    """A released head: a state dict or a whole module with ``weight`` (classes, embed_dim), read without running code.

    If the weight contains the logit scale, this is the length of its rows; unit rows get ``scale``. Without ``classes``
    any number of classes is accepted.

    Raises:
        TaskError: there is no such matrix, it is transposed, has another number of classes or rows of different
            lengths, or there is a bias.
    """
    checkpoint = open_path(path, path.name, str(path))
    weight = _read_weight(checkpoint)
    if tuple(weight.shape) == (embed_dim, classes) and classes != embed_dim:
        raise TaskError(
            f"{checkpoint.name}: its weight is {embed_dim} × {classes}, the transpose of a head: one row for "
            f"each of the {classes} classes is expected. Save weight.T."
        )
    if weight.shape[1] != embed_dim:
        raise TaskError(f"{checkpoint.name}: its rows have {weight.shape[1]} numbers, the model gives {embed_dim}.")
    if classes is not None and len(weight) != classes:
        raise TaskError(f"{checkpoint.name} has {len(weight)} classes; the data set has {classes}.")
    return _separate_scale(weight, checkpoint.name, scale)


def _read_weight(checkpoint: Checkpoint) -> Tensor:
    """The one matrix of a head (classes, embed_dim), float32. Raises TaskError if there are others or a bias."""
    names = [
        name for name, info in checkpoint.infos.items() if name.split(".")[-1] == "weight" and len(info.shape) == 2
    ]
    candidates = [name for name in names if "head" in name] or names
    if len(candidates) != 1:
        raise TaskError(
            f"{checkpoint.name} is not a head: it has {len(candidates)} matrices called 'weight', one is expected."
        )
    bias = candidates[0].removesuffix("weight") + "bias"
    if bias in checkpoint.infos and checkpoint.read(bias).count_nonzero():
        raise TaskError(
            f"{checkpoint.name} has a bias that is not zero, so it is not a zero-shot head and cannot be used."
        )
    return checkpoint.read(candidates[0]).to(torch.float32)


def _separate_scale(weight: Tensor, name: str, scale: float) -> Head:
    """The head of a matrix (classes, embed_dim) that may contain the logit scale; unit rows get ``scale``."""
    if not weight.isfinite().all():
        raise TaskError(f"{name} holds numbers that are not finite.")
    lengths = weight.double().norm(dim=1)
    median = float(lengths.median())
    if median == 0 or float(lengths.max() - lengths.min()) > LENGTH_TOLERANCE * median:
        hint = (
            " Its columns are of one length: is it transposed?" if _has_even_rows(weight.T) and len(weight) > 1 else ""
        )
        raise TaskError(
            f"{name}: its rows have lengths from {float(lengths.min()):.3g} to {float(lengths.max()):.3g}; those of a "
            f"zero-shot head are all 1, or all the logit scale.{hint}"
        )
    rows = (weight / lengths[:, None]).to(torch.float32)
    if UNIT_LENGTHS[0] <= median <= UNIT_LENGTHS[1]:
        return Head(rows, scale)
    if median < MIN_SCALED_LENGTH:
        raise TaskError(f"{name}: its rows have length {median:.3g}, which is neither 1 nor a logit scale.")
    return Head(rows, median)


def _has_even_rows(weight: Tensor) -> bool:
    """Whether the rows of a matrix (m, n) are of one length."""
    lengths = weight.double().norm(dim=1)
    return bool(lengths.max() - lengths.min() <= LENGTH_TOLERANCE * lengths.median())

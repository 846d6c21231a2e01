"""The answer by depth: the model's answer if its class token were read out after each block (logit lens)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from merging.engine.evaluation.image_features import cosine_margins, cosines

if TYPE_CHECKING:
    from merging.images.image_encoder import Encoder
    from merging.study.one_image.studied_image import StudiedImage
    from merging.study.one_image.trace import Trace

TOP_CLASSES = 3  # the answers with the highest probabilities that are listed
COLUMNS = ("model", "title", "depth", "number", "class", "probability", "rank", "right", "line")


def compute_probabilities(features: Tensor, image: StudiedImage) -> Tensor:
    """The probability of every class (n, C) from features (n, e)."""
    return (image.scale * cosines(features.cpu(), image.head)).softmax(dim=-1)


def lens_table(trace: Trace, image: StudiedImage, output: Encoder | None = None) -> pd.DataFrame:
    """A row for each depth and class that is plotted as a line or is among the three most probable at this depth.

    Columns: model (key), title, depth (0: before block 0; b: after b blocks), number and class, probability, rank (1
    is the answer at this depth), right (whether it is the image's class), line (whether it is the right class or one of
    the three most probable at the end). ``output`` is another model whose head reads out the tokens, such as the
    pretrained one.
    """
    shares = compute_probabilities(trace.features(output), image)
    order = shares.argsort(dim=-1, descending=True)
    ranks = order.argsort(dim=-1).numpy() + 1
    lines = {*order[-1, :TOP_CLASSES].tolist(), *([] if image.label is None else [image.label])}
    keep = ranks <= TOP_CLASSES
    keep[:, sorted(lines)] = True
    depths, numbers = np.nonzero(keep)
    label = -1 if image.label is None else image.label
    columns = (
        trace.key, trace.title, depths, numbers, [image.class_name(number) for number in numbers.tolist()],
        shares.numpy()[depths, numbers], ranks[depths, numbers], numbers == label,
        np.isin(numbers, sorted(lines)),
    )  # fmt: skip
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))


def answers_by_depth(trace: Trace, image: StudiedImage, output: Encoder | None = None) -> NDArray[np.int64]:
    """The classes (depths,) that are read out at the B + 1 depths; the last one is the model's answer."""
    classes: NDArray[np.int64] = cosines(trace.features(output), image.head).argmax(dim=-1).numpy()
    return classes


def cosine_margin(features: Tensor, image: StudiedImage, label: int) -> NDArray[np.float32]:
    """By how much the cosine of a class exceeds the largest other one (n,), from features (n, e)."""
    import torch

    values: NDArray[np.float32] = cosine_margins(
        features.cpu(), image.head, torch.full((len(features),), label)
    ).numpy()
    return values


def settling_depth(by_depth: NDArray[np.int64]) -> NDArray[np.int64]:
    """The depth (*S) from which the final answer stays, of answers ``by_depth`` (depths, *S)."""
    return _start_of_last_run(by_depth == by_depth[-1])


def parting_depth(by_depth: NDArray[np.int64], other_answers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The depth (*S) from which two models' answers (depths, *S) stay different; ``depths`` if they end equal."""
    return _start_of_last_run(by_depth != other_answers)


def _start_of_last_run(holds: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first depth (*S) from which a condition (depths, *S) holds up to the end."""
    until_end = np.logical_and.accumulate(holds[::-1], axis=0)
    first: NDArray[np.int64] = len(holds) - until_end.sum(axis=0, dtype=np.int64)
    return first


def followed_class(image: StudiedImage, reference: Trace) -> int:
    """The class whose probability is followed: the image's own, or the reference's answer if the image has no label."""
    return int(answers_by_depth(reference, image)[-1]) if image.label is None else image.label


def summarize_answer(trace: Trace, image: StudiedImage, reference: Trace) -> pd.DataFrame:
    """One row: the model's answer and its probability, the class that is followed, and where the answers change.

    Columns: model, title, answer, probability, followed, followed_probability, margin (of the followed class), right
    (None without a label), stays (the depth from which the answer stays), parts (the depth from which it differs from
    the reference's, -1 if it ends equal).
    """
    by_depth, followed = answers_by_depth(trace, image), followed_class(image, reference)
    features = trace.features()[-1:]
    shares = compute_probabilities(features, image)[0]
    parts_at = int(parting_depth(by_depth, answers_by_depth(reference, image)))
    row = {
        "model": trace.key, "title": trace.title, "answer": image.class_name(int(by_depth[-1])),
        "probability": float(shares[by_depth[-1]]), "followed": image.class_name(followed),
        "followed_probability": float(shares[followed]), "margin": float(cosine_margin(features, image, followed)[0]),
        "right": None if image.label is None else bool(by_depth[-1] == image.label),
        "stays": int(settling_depth(by_depth)), "parts": -1 if parts_at == len(by_depth) else parts_at,
    }  # fmt: skip
    return pd.DataFrame([row])

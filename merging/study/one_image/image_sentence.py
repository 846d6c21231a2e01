"""An image's tables summarized in sentences.

The class followed is the image's class, or the reference's answer if the image has no label. A model parts from the
reference at the depth from which on their answers differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from merging.base.text import printable
from merging.models.model_references import PRETRAINED
from merging.study.one_image.restore import CLASS, first_restoring_depth

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.one_image.studied_image import StudiedImage


def describe_image(
    summary: pd.DataFrame, image: StudiedImage, reference: pd.DataFrame, restored: pd.DataFrame | None = None
) -> str:
    """Two or three sentences about one model: its answer, where it parts from the reference, and what fixes it.

    ``summary`` and ``reference`` have one row each (``logit_lens.summarize_answer``); ``restored`` is the table of
    ``restore.restore`` with the reference's tokens. Depths are counted as in figures: 0 is before block 0, b after b
    blocks. Names are untrusted text, so their invisible characters are escaped.
    """
    row, reference_row = summary.iloc[0].to_dict(), reference.iloc[0].to_dict()
    sentences = [_describe_answer(row, reference_row, image)]
    if row["model"] != reference_row["model"]:
        sentences.append(_describe_parting(row, reference_row))
    is_wrong = row["answer"] != row["followed"]
    if restored is not None and is_wrong and row["model"] != reference_row["model"]:
        sentences.append(_describe_restoring(restored, reference_row, image))
    return " ".join(sentences)


def _describe_answer(row: dict[Any, Any], reference_row: dict[Any, Any], image: StudiedImage) -> str:
    says = f"{printable(str(row['title']))} says “{printable(str(row['answer']))}” ({row['probability']:.0%})"
    followed = f"“{printable(str(row['followed']))}”"
    if image.label is not None:
        if row["right"]:
            return f"{says}, which is right."
        return f"{says}, the right {followed} has {row['followed_probability']:.0%}."
    if row["answer"] == row["followed"]:
        return f"{says}; the image has no label."
    return f"{says}; {followed}, the answer of {_describe_model(reference_row)}, has {row['followed_probability']:.0%}."


def _describe_parting(row: dict[Any, Any], reference_row: dict[Any, Any]) -> str:
    if row["parts"] < 0:
        return f"Its answer is that of {_describe_model(reference_row)}, and stays from depth {row['stays']:.0f} on."
    return f"It parts from the answer of {_describe_model(reference_row)} at depth {row['parts']:.0f}."


def _describe_restoring(restored: pd.DataFrame, reference_row: dict[Any, Any], image: StudiedImage) -> str:
    depth = first_restoring_depth(restored, CLASS)
    token = f"the class token of {_describe_model(reference_row)}"
    followed = f"says “{printable(str(reference_row['followed']))}”"
    if depth < 0:
        return f"Not even before the last block does {token} fix it."
    return f"With {token} before block {depth} it {'is right again' if image.label is not None else followed}."


def _describe_model(row: dict[Any, Any]) -> str:
    if row["model"] == PRETRAINED:
        return "the pretrained model"
    return f"the {printable(str(row['title']))}".replace("the Expert", "the expert")

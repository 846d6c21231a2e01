"""Papers' printed scores of networks other than CLIP: the rows of ``beyond.csv``, and facts on their models.

A row is one line of a paper's table for one model; an empty cell is a value that is not printed. ``kind``, ``paper``,
``tables``, ``chain`` and ``unstated`` have the form of ``published.csv``; the other columns are ``MEASURES``. Values
are as printed: accuracies and their averages in percent, CIDEr as a plain number. Nothing is averaged over measures.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from merging.base.errors import RecipeError
from merging.base.text import did_you_mean
from merging.recipes.papers.published_figures import (
    MERGE,
    REFERENCE_KINDS,
    SOURCES,
    Steps,
    parse_number,
    parse_printed_chain,
)

BEYOND_FILE = Path(__file__).with_name("beyond.csv")
ACCURACY, CIDER = "accuracy", "CIDEr"
SIX_TASKS = ("PAWS", "QASC", "QuaRTz", "StoryCloze", "WikiQA", "WinoGrande")
CLASSIFIER_TRAINING = "Fully fine-tuned, as classifiers of sequences."


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of measured values: its title, and its metric, accuracy in percent or CIDEr."""

    title: str
    metric: str = ACCURACY


MEASURES: Mapping[str, Measure] = {
    "average": Measure("Average"),
    "tuned": Measure("Average, tuned"),  # the average with parameters tuned on validation data
    "in_domain": Measure("In"),
    "out_of_domain": Measure("Out"),
    "h_score": Measure("H"),
    "COCO": Measure("COCO", CIDER),
    "Flickr30k": Measure("Flickr30k", CIDER),
    "TextCaps": Measure("TextCaps", CIDER),
    "OKVQA": Measure("OKVQA"),
    "TextVQA": Measure("TextVQA"),
    "ScienceQA": Measure("ScienceQA"),
}
COLUMNS = ("kind", "paper", "tables", "name", "model", "chain", "note", "unstated", *MEASURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondModel:
    """A paper's model: the title of its network, its tasks in and out of domain, and the training of its experts."""

    network: str  # the title by which ``network_facts`` describes it
    tasks: tuple[str, ...]
    outside: tuple[str, ...] = ()
    about: str


MODELS: Mapping[str, BeyondModel] = {
    "DeBERTa-v3-base": BeyondModel(network="DeBERTa", tasks=SIX_TASKS, about=CLASSIFIER_TRAINING),
    "T5-base": BeyondModel(network="T5", tasks=SIX_TASKS, about=CLASSIFIER_TRAINING),
    "T5-large": BeyondModel(network="T5", tasks=SIX_TASKS, about=CLASSIFIER_TRAINING),
    "Llama-3.1-8B LoRA": BeyondModel(
        network="Llama or a relative of it",
        tasks=("CoLA", "SST-2", "MNLI", "QNLI", "RTE"),
        about="LoRA of rank 16 on q, k, v and o, as classifiers of sequences; tested on the validation sets of GLUE.",
    ),
    "T5-large-LM-adapt": BeyondModel(
        network="T5",
        tasks=(*SIX_TASKS, "WSC"),
        outside=("RTE", "CB", "WiC", "COPA", "H-SWAG", "ANLI 1", "ANLI 2", "ANLI 3"),
        about="Fully fine-tuned, text to text.",
    ),
    "BLIP-VQA": BeyondModel(
        network="BLIP",
        tasks=("COCO", "Flickr30k", "TextCaps", "OKVQA", "TextVQA", "ScienceQA"),
        about="All weights, 6,000 steps a task. CIDEr for captions, accuracy for questions.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondFigure:
    """One row: the values by measure, and for a merge the chain with the parameters that the paper states."""

    kind: str  # MERGE or one of REFERENCE_KINDS
    name: str
    model: str
    chain: Steps
    values: Mapping[str, float]
    source: str
    note: str = ""
    unstated: bool = False  # whether values were used that the paper does not print

    def has_method(self, role: str, key: str) -> bool:
        """Whether the chain has a method in a role; false for models that are not merged. No row has an adapt."""
        steps = slice(None, -1) if role == "edit" else slice(-1, None)
        return role != "adapt" and key in (step for step, _ in self.chain[steps])


def read_beyond_figures(path: Path = BEYOND_FILE) -> tuple[BeyondFigure, ...]:
    """The figures of a file, in the file's order.

    Raises:
        RecipeError: columns other than ``COLUMNS``, or a malformed cell; names the file, line and field.
    """
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        if tuple(lines.fieldnames or ()) != COLUMNS:
            raise RecipeError(f"{path.name}, line 1: the columns must be {', '.join(COLUMNS)}.")
        figures = []
        for row in lines:
            try:
                figures.append(_parse_figure(row))
            except RecipeError as error:
                raise RecipeError(f"{path.name}, line {lines.line_num}: {error}") from None
    return tuple(figures)


def _parse_figure(row: Mapping[str, str]) -> BeyondFigure:
    if None in row or None in row.values():
        raise RecipeError(f"a row has {len(COLUMNS)} cells.")
    for field, known in (("kind", (MERGE, *REFERENCE_KINDS)), ("paper", SOURCES), ("model", MODELS)):
        if row[field] not in known:
            raise RecipeError(f"field {field}: {row[field]!r} is not known.{did_you_mean(row[field], known)}")
    if bool(row["chain"]) != (row["kind"] == MERGE):
        raise RecipeError("field chain: merges have a chain, and other kinds have none.")
    # CIDEr is a plain number; a larger one would be in percent.
    maxima = {name: 100.0 if measure.metric == ACCURACY else 10.0 for name, measure in MEASURES.items()}
    cells = {name: parse_number(row, name, maximum) for name, maximum in maxima.items()}
    values = {name: value for name, value in cells.items() if value is not None}
    if not values:
        raise RecipeError("the row has no value.")
    return BeyondFigure(
        kind=row["kind"],
        name=row["name"],
        model=row["model"],
        chain=parse_printed_chain(row["chain"]),
        values=values,
        source=f"{row['paper']}, {row['tables']}",
        note=row["note"],
        unstated=row["unstated"] == "yes",
    )


OTHER_NETWORK_FIGURES = read_beyond_figures()

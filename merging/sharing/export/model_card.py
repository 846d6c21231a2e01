"""The model card: README.md with metadata for the Hub, and a description of the model and its use for readers.

Names are untrusted text: a YAML library writes them in the metadata, and the text escapes all Markdown in them. The
card names no machine, folder or time.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merging.base.errors import TaskError
from merging.base.files.plain_yaml import write_yaml
from merging.base.text import code_block, escape_markdown, markdown_table, percent_with_interval, printable, size_text
from merging.base.version import __version__
from merging.engine.modules.modules_card import list_card_paragraphs
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.metrics import ADAPTS_ON_TEST, PER_TASK, TASK_KNOWN, summarize
from merging.methods.params import TABLE
from merging.models.task_checkpoints import count_experts
from merging.recipes.recipe import Recipe
from merging.sharing.export.export_source import ExportSource
from merging.sharing.export.export_tower import ExportTower
from merging.sharing.export.targets import ExportTarget
from merging.study.analysis.storage_accounting import sum_by_account
from merging.study.runs.run import RECIPE, Run

if TYPE_CHECKING:
    import pandas as pd

CARD_FILE = "README.md"
SPLIT = "reporting"  # the part of each test set that scores are reported on; the choosing half is the other part
MAX_WARNING_CHARACTERS = 2000  # characters of a warning
MAX_TABLE_CHARACTERS = (
    120  # of a parameter with a value for each pattern of layers, such as manual's; the recipe has it in full
)
SPLIT_SENTENCES = {  # by the split with whose images a recipe adapts the merged model
    "choosing": "It learned, without labels, from test images other than those of its scores.",
    "reporting": ADAPTS_ON_TEST,
    "exemplars": "It learned from training images.",
}
MAX_RECIPE_LINES = 400  # of the recipe in a file's metadata
STORAGE_TEXTS = {
    "dense": "The files as stored",
    "sparse": "The difference from the pretrained model, each tensor in its smallest encoding",
    "paper": "Non-zero numbers of the task vector, four bytes each (LwPTV, Table 15)",
    "deploy": "All files that a user of the model needs",
}


@dataclass(frozen=True)
class Card:
    """The content of a card."""

    source: ExportSource
    towers: Mapping[str, ExportTower]
    target: ExportTarget
    nbytes: int

    @property
    def tower(self) -> ExportTower:
        """One of the models; all have the same architecture."""
        return next(iter(self.towers.values()))

    @property
    def scores(self) -> pd.DataFrame | None:
        """Accuracies on the reporting half."""
        run = self.source.run
        if run is None or run.scores is None:
            return None
        rows = run.scores[run.scores["split"] == SPLIT]
        return rows if len(rows) else None


def write_card(folder: Path, card: Card) -> None:
    """Write README.md."""
    head = write_yaml(collect_metadata(card))
    text = "\n\n".join(part for part in write_sections(card) if part)
    (folder / CARD_FILE).write_text(f"---\n{head}---\n\n{text}\n", "utf-8")


# --- for the Hub -----------------------------------------------------------------------------------------------------


def collect_metadata(card: Card) -> dict[str, Any]:
    """The metadata that the Hub reads."""
    recipe = card.source.recipe
    ids = list(dict.fromkeys(parent.model_id for parent in card.source.parents))
    entries: dict[str, Any] = {
        "library_name": card.target.library,
        "pipeline_tag": card.target.task_name(card.tower),
        "base_model": ids,
    }
    if recipe is not None:
        keys = dict.fromkeys(step.key for step in recipe.steps)
        entries |= {"base_model_relation": "merge", "tags": ["merge", "model-merging", "clip", *keys]}
    else:
        entries["tags"] = ["merge", "model-merging", "clip"] if "merge_recipe" in card.source.metadata else ["clip"]
    if (rows := card.scores) is not None:
        results = [_make_result(row) for row in rows.to_dict("records")]
        entries["model-index"] = [{"name": printable(card.source.title), "results": results}]
    return entries


def _make_result(row: Mapping[Any, Any]) -> dict[str, Any]:
    kind = "zero-shot-image-classification"
    numbers = {key: round(float(row[key]), 4) for key in ("accuracy", "low", "high") if not math.isnan(row[key])}
    interval = {"wilson_95_low": numbers.get("low"), "wilson_95_high": numbers.get("high")}
    metric = {"type": "accuracy", "name": "top-1", "value": numbers.get("accuracy")}
    return {
        "task": {"type": kind, "name": "Zero-shot image classification"},
        "dataset": {"type": printable(str(row["task"])), "name": printable(str(row["title"])), "split": SPLIT},
        "metrics": [metric | {"args": {"n": int(row["n"]), **interval}}],
    }


# --- for readers ------------------------------------------------------------------------------------------------------


def markdown_text(text: object) -> str:
    """Untrusted text in a line of Markdown."""
    return escape_markdown(printable(str(text)))


def write_sections(card: Card) -> Iterator[str]:
    """The text, section by section."""
    source = card.source
    yield f"# {markdown_text(source.title)}"
    yield _describe_model(card)
    if source.run is not None:
        yield describe_cautions(source.run)
    yield "## How to load it"
    yield _describe_loading(card)
    if (modules := source.modules) is not None:
        yield "## Modules"
        yield from list_card_paragraphs(modules.method, modules.params, modules.tasks, modules.parts())
    if source.recipe is not None:
        yield "## Method"
        yield from describe_methods(source.recipe)
    yield "## Parents"
    yield parents_table(card.source)
    if source.recipe is not None:
        yield "## Recipe"
        yield describe_recipe(source.recipe)
    elif stated_recipe := source.metadata.get("merge_recipe"):
        yield "## Recipe"
        yield _describe_stated_recipe(stated_recipe)
    if source.run is not None:
        yield "## Results"
        yield from _describe_results(card, source.run)
        yield "## Storage"
        yield _describe_storage(source.run)
    yield "## Limits"
    yield "\n".join(f"- {line}" for line in _list_limits(card))


def _describe_model(card: Card) -> str:
    a, recipe = card.tower.architecture, card.source.recipe
    kind = "a whole CLIP model with a visual tower" if card.tower.text else "a CLIP visual tower"
    tower = (
        f"{kind} of {a.layers} layers and width {a.width} ({a.heads} heads, patches of {a.patch_size}, "
        f"images of {a.image_size} × {a.image_size}, activation {card.tower.activation}, {card.tower.dtype})"
    )
    if recipe is None:
        return f"This is {tower}, converted by Mergescope {__version__} without changing a number."
    count = count_experts(list(dict(recipe.experts)))
    models = f"{len(recipe.experts)} models, one per task, each" if recipe.per_task else "It is"
    return f"Merged from {count} by Mergescope: {markdown_text(recipe.text())}. {models} {tower}."


def describe_cautions(run: Run) -> str:
    """Warnings about the model, below its description; empty if there are none."""
    return "\n".join(
        f"- **Warning:** {escape_markdown(printable(line, MAX_WARNING_CHARACTERS))}" for line in run.cautions
    )


def _describe_loading(card: Card) -> str:
    folder = next(iter(card.towers)) or "."
    text = code_block(card.target.write_loading_code(card.tower, folder), "python")
    explanation = "`folder` is this folder; `image` is a PIL image."
    if card.source.tasks:
        explanation = "`folder` is one of the tasks' folders, which tasks.json lists; `image` is a PIL image."
    if card.tower.text is not None:
        explanation += card.target.loading_note
    elif card.target.library == "open_clip":
        explanation += (
            " The text side is not in these files: for zero-shot classification, create the model with the name "
            "and weights of the pretrained model in the first step, and then load these weights."
        )
    return f"{text}\n\n{explanation}"


def describe_methods(recipe: Recipe) -> Iterator[str]:
    """Every method of a chain, with its parameters and formula."""
    for number, (method, step) in enumerate(recipe.stages, 1):
        values = {name: value for name, value in step.params.stated_values().items() if value is not None}
        tables = {name: bound for name, bound in step.params.bounds().items() if bound.kind == TABLE and name in values}
        values |= {name: printable(bound.to_text(values[name]), MAX_TABLE_CHARACTERS) for name, bound in tables.items()}
        parameters = f" (`{', '.join(f'{name}={value}' for name, value in values.items())}`)" if values else ""
        yield f"{number}. **{method.title}**{parameters}: {_escape_own_text(method.summary)}"
        yield f"$$\n{method.formula}\n$$"
        yield " ".join(filter(None, (_escape_own_text(method.variant), _escape_own_text(method.cite.text()))))


def _escape_own_text(text: str) -> str:
    """A sentence of this program without Markdown."""
    return re.sub(r"([\\`*_<>$\[\]])", r"\\\1", text)


def parents_table(source: ExportSource) -> str:
    """A table of the parents of the model."""
    rows = [
        (markdown_text(parent.name), markdown_text(parent.hub_id or parent.label), f"`{parent.digest}`")
        for parent in source.parents
    ]
    note = "Digests cover the tensors' names, types, shapes and values; `mergescope inspect` prints them."
    return f"{markdown_table(('Model', 'File or repository', 'SHA-256 of its tensors'), rows)}\n\n{note}"


def describe_recipe(recipe: Recipe) -> str:
    """The recipe, and how to compute it again."""
    return (
        f"{code_block(recipe.to_yaml(), 'yaml')}\n\n`mergescope run {RECIPE} --base FOLDER` computes it "
        f"again, with the parents' files in that folder, named as in the recipe."
    )


def _describe_stated_recipe(text: str) -> str:
    """The recipe in the metadata of a converted file."""
    try:
        shown_text = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    except (ValueError, RecursionError):
        shown_text = text
    lines = [printable(line, 500) for line in shown_text.splitlines()[:MAX_RECIPE_LINES]]
    return "The file states that it was merged by this recipe:\n\n" + code_block("\n".join(lines), "json")


def _describe_results(card: Card, run: Run) -> Iterator[str]:
    rows = card.scores
    if rows is None:
        yield (
            "\n\n".join(escape_markdown(printable(text, MAX_WARNING_CHARACTERS)) for text in run.evaluation_warnings)
            or "It was not evaluated."
        )
        return
    cells = [
        (
            markdown_text(row["title"]),
            "in" if row["task"] in run.experts else "out",
            percent_with_interval(row["accuracy"], row["low"], row["high"]),
            f"{row['n']:,}",
        )
        for row in rows.to_dict("records")
    ]
    yield markdown_table(("Data set", "Domain", "Top-1 accuracy [Wilson 95 %]", "Images"), cells)
    if run.test_images:
        yield f"Scores are of {markdown_text(run.test_images)}."
    summary = summarize(rows, run.experts)
    in_domain = percent_with_interval(summary.in_domain, summary.in_low, summary.in_high)
    out_of_domain = percent_with_interval(summary.out_of_domain, summary.out_low, summary.out_high)
    lines = [
        f"In domain {in_domain} over {summary.tasks_in} data sets and {summary.n_in:,} images.",
        f"Out of domain {out_of_domain} over {summary.tasks_out} data sets and {summary.n_out:,} images.",
    ]
    if not math.isnan(summary.h_score):
        lines.append(f"H-score {100 * summary.h_score:.1f}.")
    if not run.whole:  # the benchmark divides its test sets
        lines.append(f"All on the {SPLIT} half of each test set; values are chosen on the other images.")
    yield " ".join(lines)


def _describe_storage(run: Run) -> str:
    sizes = sum_by_account(run)
    rows = [(text, size_text(sizes[key])) for key, text in STORAGE_TEXTS.items()]
    return markdown_table(("Counted", "Size"), rows)


def _list_limits(card: Card) -> Iterator[str]:
    recipe, run = card.source.recipe, card.source.run
    if (text := card.tower.text) is None:
        yield (
            f"Images only, without a text tower: {markdown_text(card.tower.image_only)}. Text features and class "
            f"names come "
            "from the pretrained model's text tower."
        )
    else:
        yield f"Its text tower is that of {markdown_text(text.source)}; merging does not change it."
    if not card.tower.has_projection:
        yield "It has no output projection; apply that of the pretrained model to its output."
    for tower in card.towers.values():
        yield from (escape_markdown(printable(text, MAX_WARNING_CHARACTERS)) for text in tower.warnings)
        break
    if recipe is not None and recipe.per_task:
        yield _escape_own_text(PER_TASK)
    if recipe is not None and recipe.exemplars is not None:
        exemplars = recipe.exemplars
        count = _format_image_count(run, "exemplars") or f"at most {exemplars.per_task}"
        yield f"The methods used {count} training images of each task (seed {exemplars.seed})."
    if recipe is not None and recipe.adapted_on:
        yield f"{SPLIT_SENTENCES[recipe.adapted_on]}{_describe_test_images(recipe, run)}"
    if run is not None and run.needs_task and not run.per_task:
        yield _escape_own_text(TASK_KNOWN)
    if run is not None:
        yield from (
            escape_markdown(printable(text, MAX_WARNING_CHARACTERS))
            for text in run.remarks
            if text not in run.evaluation_warnings
        )
        if run.benchmark and run.benchmark in _read_bundled_digests():
            yield "Scores are on the bundled benchmark of small images, not on the papers' data sets."
        yield f"Computed on {markdown_text(run.device)} with torch {markdown_text(run.versions.get('torch', '?'))}."
    if run is None or not run.licenses:
        yield "Its license follows from those of its parents, which were not read."
        return
    yield "Its license follows from those of its parents. Their cards state:"
    yield markdown_table(
        ("Model or data set", "License"),
        [(markdown_text(name), markdown_text(text)) for name, text in run.licenses.items()],
    )


def _describe_test_images(recipe: Recipe, run: Run | None) -> str:
    """A sentence on the number of test images per task; empty if the number is unknown."""
    if recipe.test_data is None:
        return ""
    max_images, seed = recipe.test_data.per_task, recipe.test_data.seed
    count = _format_image_count(run, "test_data") or ("" if max_images is None else f"at most {max_images}")
    return f" There were {count} of each task{'' if max_images is None else f' (seed {seed})'}." if count else ""


def _format_image_count(run: Run | None, kind: str) -> str:
    """The number of images of each task that a run used, '20 to 64' if they differ; empty if it is not recorded."""
    counts = sorted(run.images.get(kind, {}).values()) if run is not None else []
    return "" if not counts else f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"


def _read_bundled_digests() -> list[str]:
    """The digests of the bundled benchmarks that are installed."""
    from merging.base.settings import BUNDLED_TEAMS

    digests = []
    for folder in BUNDLED_TEAMS.values():
        with contextlib.suppress(TaskError, OSError):
            digests.append(Benchmark.load(folder).digest)
    return digests

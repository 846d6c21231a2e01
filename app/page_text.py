"""Text on pages. Names, titles and messages are untrusted: they pass through ``safe_text`` and stay text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from merging.base.errors import MergingError
from merging.base.text import escape_markdown
from merging.images.benchmarks.metrics import ADAPTS_ON_TEST, PER_TASK, TASK_KNOWN
from merging.methods import registry
from merging.methods.factor_rules import describe_rules
from merging.methods.method import Adapt, Method
from merging.methods.params import TABLE
from merging.models.task_checkpoints import count_experts
from merging.recipes.recipe import Recipe
from merging.recipes.step import Step
from merging.study.runs.run import Run
from viz.figure_text import clean_text

if TYPE_CHECKING:
    import pandas as pd

# What ``plain_text`` replaces.
MARKUP_PATTERN = re.compile(r"\\(.)|:material/\w+:\s*|:[a-z]+(?:-badge)?\[|\]|\*\*|[*`]")
SENTENCE_END = re.compile(
    r"(?<!\bEq)(?<!\bEqs)(?<!\bFig)(?<!\bFigs)(?<!\bvs)[.!?]\)? +(?=[^\W\d_]* ?= |[A-ZΑ-Ω0-9λ†‡◇●*:\[“])"
)
NUMBER_KINDS = ("real", "integer")
ONE_PER_TASK, MODULE_PER_TASK = "one model per task", "a module per task"
ADAPTING_WORDS = {  # images that a run learned from without labels -> sentence
    "choosing": "Adapted on other test images than the scored ones, without labels.",
    "reporting": "† Adapted on these images, the scored ones, without labels.",
    "exemplars": "Adapted on training images, without labels.",
}
TEST_DATA_WORDS = {  # origin of test data -> words
    "choosing": "other test images",
    "reporting": "† the scored images, as the papers do",
    "exemplars": "training images",
}
OWN_METHOD = "own method"  # the mark of a method that is not part of this program
MINUS = "\N{MINUS SIGN}"
# Titles in stored files, whose digests must not change.
TITLE_CORRECTIONS = {"Handwriting digits": "Handwritten digits"}


def safe_text(text: object, limit: int = 80) -> str:
    """``clean_text`` escaped for Markdown, which then shows exactly these characters."""
    return escape_markdown(clean_text(text, limit))


def plain_text(markdown: str) -> str:
    """Our own Markdown as plain text: escapes undone, emphasis and icons left out, badges in parentheses."""
    open_brackets = 0

    def replace_mark(mark: re.Match[str]) -> str:
        nonlocal open_brackets
        if mark[1]:
            return mark[1]
        if mark[0].endswith("["):
            open_brackets += 1
            return "("
        if mark[0] == "]" and open_brackets:
            open_brackets -= 1
            return ")"
        return "]" if mark[0] == "]" else ""

    return MARKUP_PATTERN.sub(replace_mark, markdown)


def split_sentences(markdown: str) -> list[str]:
    """The sentences of our own Markdown; bold type never ends up in two of them."""
    sentences, start = [], 0
    for end in SENTENCE_END.finditer(markdown):
        if markdown.count("**", start, end.start()) % 2 == 0:
            sentences.append(markdown[start : end.end()].strip())
            start = end.end()
    return [*sentences, markdown[start:].strip()] if markdown[start:].strip() else sentences


def correct_titles(text: str) -> str:
    """The text with the titles of data sets as pages show them, in place of those in files."""
    for old, new in TITLE_CORRECTIONS.items():
        text = text.replace(old, new)
    return text


def add_titles(table: pd.DataFrame) -> pd.DataFrame:
    """A table of data sets with the titles under which pages show them."""
    return table.assign(title=table["title"].map(correct_titles)) if "title" in table else table


def look_up_names(keys: pd.Series, names: Mapping[Any, str], default: str | None = None) -> pd.Series:
    """The name of each key as text; for a key without a name, ``default`` or the key itself."""
    return keys.map(lambda key: names.get(key, key if default is None else default))


def format_signed(value: float, digits: int = 1) -> str:
    """A difference with its sign, '+3.5' or '−2.7'; a difference that rounds to zero is '+0.0'."""
    return f"{round(value, digits) + 0.0:+,.{digits}f}".replace("-", MINUS)  # + 0.0 turns -0.0 into 0.0


def join_words(words: Sequence[str]) -> str:
    """The words as a list in a sentence: 'a, b and c'; 'nothing' if there are none."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "nothing"


def value_in_words(value: Any) -> str:
    """A parameter's value as words in a sentence."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "automatic"
    if isinstance(value, tuple):
        return describe_rules(value)
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")


def method_title(key: str) -> str:
    """The title of the method with that key; the key itself if no method has it."""
    return next((method.title for method in registry.list_methods() if method.key == key), key)


def title_with_owner(method: Method) -> str:
    """The title of a method, with a mark if it is not ours."""
    return f"{method.title} ({OWN_METHOD})" if method.origin else method.title


def needs_words(method: Method) -> str:
    """The inputs of a method besides checkpoints: 'labeled exemplars, heads'."""
    heads = method.heads or method.gradients is not None
    task = isinstance(method, Adapt) and method.needs_task
    return ", ".join([str(method.needs), *["heads"] * heads, *["each image's task"] * task])


def step_words(step: Step, numbers: bool = True) -> str:
    """'TIES (density 0.2, scaling coefficient 0.3)': values other than the default, with ``numbers`` every number.

    A table of rules (factors for parts of the network) is written without its label: 'Manual (blocks 0-1 × 0)'.
    """
    title = method_title(step.key)
    bounds = step.params.bounds()
    parts = [
        value_in_words(value) if bounds[name].kind == TABLE else f"{bounds[name].label.lower()} {value_in_words(value)}"
        for name, value in step.params.effective_values().items()
        if value != bounds[name].default
        or (numbers and value is not None and bounds[name].kind in NUMBER_KINDS and not bounds[name].later)
    ]
    return f"{title} ({', '.join(parts)})" if parts else title


def chain_words(recipe: Recipe) -> str:
    """The chain in words: 'LwPTV (prune ratio 0.7), then TIES (density 0.2)'."""
    # a stage is a method with its step: an edit, the merge or the adapt
    return ", then ".join(step_words(step) for _, step in recipe.stages)


def chain_title(recipe: Recipe) -> str:
    """A short name for a chain: 'LwPTV (prune ratio 0.6) → TIES'."""
    words = " → ".join(step_words(step, numbers=False) for step in recipe.steps)
    return f"{words} + {step_words(recipe.adapt, numbers=False)}" if recipe.adapt else words


@lru_cache(maxsize=256)
def _cached_chain_words(recipe_yaml: str, unused_text: bool) -> str:
    """The chain in words, with a note if it counts the unused text tensors of the models.

    ``unused_text``: the checkpoints also contain a text encoder, which no merge uses; recipes call its tensors dead.
    """
    recipe = Recipe.from_yaml(recipe_yaml)
    note = ", counting the unused text tensors" if unused_text and recipe.count_dead_params else ""
    return chain_words(recipe) + note


def run_in_words(run: Run) -> str:
    """A sentence on a run: its title, chain and models; Markdown."""
    if run.kind != "merge":
        return f"**{safe_text(correct_titles(run.name))}**, evaluated without a merge. Run {run.id[:8]}."
    try:
        chain = safe_text(_cached_chain_words(run.recipe_yaml, run.sizes["dead"] > 0), 300) if run.recipe_yaml else ""
    except MergingError:
        chain = "a chain with a method that this version does not know"
    models = f"{count_experts(run.experts)}{f' into {ONE_PER_TASK}' if run.per_task else ''}"
    models += f", with {MODULE_PER_TASK}" if run.needs_task and not run.per_task else ""
    return f"**{safe_text(run.name)}**: {chain}, merging {models}. Run {run.id[:8]}."


def adapting_in_words(run: Run) -> str:
    """A sentence on the images that a run learned from without labels; empty for a run that did not."""
    return ADAPTING_WORDS.get(run.adapted_on or "", "")


def per_task_in_words(run: Run) -> str:
    """A sentence on the parts that a run has for each task, for which the task of every image must be known.

    Empty if there are none.
    """
    return ONE_PER_TASK if run.per_task else MODULE_PER_TASK if run.needs_task else ""


def marks_in_words(runs: Iterable[Run]) -> list[str]:
    """The meanings of the marks ‡ and †, for each mark that one of the runs has."""
    runs = list(runs)
    sentences = [f"Marked ‡. {PER_TASK}"] if any(run.per_task for run in runs) else []
    sentences += [f"Marked ‡. {TASK_KNOWN}"] if any(run.needs_task and not run.per_task for run in runs) else []
    return sentences + ([ADAPTS_ON_TEST] if any(run.adapts_on_test for run in runs) else [])


def title_with_note(run: Run, name: str = "") -> str:
    """A run's title, or ``name``, with a note if its scores are not comparable to others; untrusted plain text."""
    title = (name or correct_titles(run.name)) + (" †" if run.adapts_on_test else "")
    return f"{title} ({per_task_in_words(run)})" if per_task_in_words(run) else title


def run_label(run: Run, name: str = "") -> str:
    """A run's label in pickers, with its own name or ``name``; plain text."""
    title = clean_text(name or correct_titles(run.name), 90) + (" †" if run.adapts_on_test else "")
    return "  ·  ".join([title, *([per_task_in_words(run)] if per_task_in_words(run) else []), run.id[:6]])

"""Facts about methods for the Methods page, from the registry, the presets and the stored runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import merging
from app import page_text
from app.session.draft import Draft
from merging.methods.method import Adapt, Method
from merging.methods.params import Bound
from merging.models.task_checkpoints import list_tasks
from merging.recipes.presets import PRESETS, Preset
from merging.recipes.recipe import DEFAULT_MERGE
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

ROLES = {
    "edit": ("Edits", "task vectors in, task vectors out"),
    "merge": ("Merges", "task vectors in, one set of weights out"),
    "adapt": ("Adapts", "modules for tasks, or a router of images, on top of a merged model"),
}


def find_methods(methods: Sequence[Method], role: str | None, needs: str | None, words: str) -> list[Method]:
    """The methods with this role and need whose cards contain all the words; an empty filter matches every method."""
    search_words = words.casefold().split()
    return [
        method
        for method in methods
        if (not role or method.role == role)
        and (not needs or method.needs == needs)
        and all(word in _make_card_text(method) for word in search_words)
    ]


def _make_card_text(method: Method) -> str:
    labels = [f"{name} {bound.label}" for name, bound in method.params.bounds().items()]
    fields = (method.key, method.title, method.role, method.summary, method.variant, method.needs, method.cite.text())
    return " ".join([*fields, *labels]).casefold()


def make_default_chain(method: Method) -> str:
    """A chain with the method at its defaults, as text in links."""
    chains = {"edit": f"{method.key};{DEFAULT_MERGE}", "adapt": f"{DEFAULT_MERGE};{method.key}"}
    return chains.get(method.role, method.key)


def find_presets(method: Method) -> list[tuple[Preset, str]]:
    """The papers' combinations that contain a method, and their chains as text in links."""
    combinations = []
    for preset in PRESETS:
        adaptations = [preset.adapt[0]] if preset.adapt else []
        keys = {"edit": [key for key, _ in preset.edits], "merge": [preset.merge], "adapt": adaptations}
        if method.key in keys[method.role]:
            combinations.append((preset, Draft.from_recipe(preset.recipe("", {"expert": ""})).chain()))
    return combinations


def build_parameter_table(method: Method) -> pd.DataFrame:
    """One row for each parameter; cells are Markdown."""
    import pandas as pd

    bounds = method.params.bounds()
    rows = [
        {
            "Parameter": f"{page_text.safe_text(bound.label)} {f'${bound.symbol}$' if bound.symbol else ''}".strip(),
            "Default": page_text.safe_text(page_text.value_in_words(bound.default)),
            "Takes": page_text.safe_text(_valid_values(bound), 200),
            "Effect": page_text.safe_text(bound.help + _notes_in_words(bound, bounds), 400),
        }
        for bound in bounds.values()
    ]
    return pd.DataFrame(rows)


def _notes_in_words(bound: Bound, bounds: Mapping[str, Bound]) -> str:
    """Notes after a parameter's help: its meaning if unset, and the condition on another parameter under which it
    counts.
    """
    unset_note = f" Unset: {bound.unset}." if bound.unset else ""
    if bound.when is None:
        return unset_note
    name, value = bound.when
    return f"{unset_note} Counts only if {bounds[name].label.lower()} is {page_text.value_in_words(value)}."


def _valid_values(bound: Bound) -> str:
    """The valid values, and the range of the slider if it is smaller."""
    valid = bound.describe().replace("_", " ")
    if bound.slider is None or bound.slider == (bound.low, bound.high):
        return valid
    low, high = bound.slider
    return f"{valid}; slider from {low:g} to {high:g}"


def read_code(method: Method) -> tuple[str, str]:
    """The path of a method's source file relative to the program's folder, and the source of its function.

    A method that is not ours has the words for where it comes from in place of the path.
    """
    functions = [method.train, method.features] if isinstance(method, Adapt) else [method.run]
    try:
        source = "\n\n".join(inspect.getsource(function) for function in functions)
    except (OSError, TypeError):  # the file of an own method is gone, or there was none
        source = "# The source cannot be read."
    if method.origin:
        return str(method.origin), source
    path = Path(inspect.getsourcefile(functions[0]) or "")
    return path.relative_to(Path(merging.__file__).parents[1]).as_posix(), source


def find_runs(method: Method, runs: Sequence[Run]) -> list[Run]:
    """The runs whose chain has the method in its role, among those with the most experts."""
    counts = {run.id: len(list_tasks(run.experts)) for run in runs}
    max_experts = max(counts.values(), default=0)
    if method.role == "adapt":
        return [run for run in runs if run.adapt == method.key and counts[run.id] == max_experts]
    steps = slice(None, -1) if method.role == "edit" else slice(-1, None)  # a chain is edits, then the merge
    return [run for run in runs if method.key in run.chain[steps] and counts[run.id] == max_experts]

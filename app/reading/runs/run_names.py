"""Names of runs in a list, no two of which are the same: a name says what differs from its neighbors."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from app import page_text
from app.reading import expert_names
from merging.methods.params import TABLE
from merging.models.task_checkpoints import count_experts
from merging.study.runs import edit_pairs
from merging.study.runs.run import Run
from viz.figure_text import clean_text

BRACKETED = re.compile(r"\([^()]*\)")
UNIMPORTANT = re.compile(r"\bmerg(?:e|ing)\b|[^\w+]", re.IGNORECASE)  # parts by which near-equal names differ
SHORT_LABELS = {"scaling coefficient": "λ"}
MAX_MISSING = 3  # experts that a name lists as not merged
MAX_SETTINGS = 4  # settings that a name states


def name_runs(runs: Sequence[Run]) -> dict[str, str]:
    """The name of each run by its id, all different; untrusted plain text.

    A run whose name equals another one, or differs only in brackets, "merging" or case, states the settings in which it
    differs. A run that states some already, and is the only one that does so in this way, keeps its name.
    """
    names = {run.id: clean_text(page_text.correct_titles(run.name), 80) for run in runs}
    whole, similar = Counter(map(str.casefold, names.values())), defaultdict(list)
    for run in runs:
        similar[_similar_key(names[run.id])].append(run)
    for group in similar.values():
        others = [run for run in group if whole[names[run.id].casefold()] > 1 or not BRACKETED.search(names[run.id])]
        if len(group) > 1 and others:
            settings = _list_settings(group)
            for run in others:
                names[run.id] = _add_parts(names[run.id], _find_differences(run.id, settings))
    counts = Counter(names.values())
    return {run_id: _add_parts(name, [run_id[:6]]) if counts[name] > 1 else name for run_id, name in names.items()}


def label_runs(runs: Sequence[Run]) -> dict[str, str]:
    """The label of each run in pickers by its id, with a name of ``name_runs``; plain text."""
    names = name_runs(runs)
    return {run.id: page_text.run_label(run, names[run.id]) for run in runs}


def _similar_key(name: str) -> str:
    return UNIMPORTANT.sub("", BRACKETED.sub("", name)).casefold() or name


def _add_parts(name: str, parts: Sequence[str]) -> str:
    if not parts:
        return name
    return f"{name[:-1]}, {', '.join(parts)})" if name.endswith(")") else f"{name} ({', '.join(parts)})"


def _list_settings(runs: Sequence[Run]) -> dict[str, dict[str, str]]:
    """The settings of each run by its id, as {setting: words for a name}, the most telling first."""
    every_expert = {name for run in runs for name in run.experts}
    settings = {}
    for run in runs:
        words: dict[str, str] = {}
        if recipe := edit_pairs.read_recipe(run):
            words["chain"] = " → ".join(page_text.method_title(step.key) for _, step in recipe.stages)
            tables = [(step.key, step.params) for _, step in recipe.stages]
            tables += [(str(type(params)), params) for params in (recipe.exemplars, recipe.test_data) if params]
            for key, params in tables:
                bounds = params.bounds()
                words |= {
                    f"{key} {name}": _setting_in_words(bounds[name].label, bounds[name].kind, value)
                    for name, value in params.effective_values().items()
                }
        missing = sorted(every_expert.difference(run.experts))
        names = [clean_text(expert_names.expert_name(name), 30) for name in missing]
        is_short = 0 < len(missing) <= MAX_MISSING
        words["experts"] = f"without {page_text.join_words(names)}" if is_short else count_experts(run.experts)
        words["run seed"] = f"seed {run.seed}"
        settings[run.id] = words
    return settings


def _setting_in_words(label: str, kind: str, value: object) -> str:
    words = clean_text(page_text.value_in_words(value), 60)
    return words if kind == TABLE else f"{SHORT_LABELS.get(label.lower(), label.lower())} {words}"


def _find_differences(run_id: str, settings: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A few settings that together distinguish a run from all others, if they can; most telling first."""
    own, parts = settings[run_id], []
    others = [words for other_id, words in settings.items() if other_id != run_id]
    while others and len(parts) < MAX_SETTINGS:
        best = max(own, key=lambda name: sum(words.get(name) != own[name] for words in others))
        remaining = [words for words in others if words.get(best) == own[best]]
        if len(remaining) == len(others):
            break
        parts.append(own[best])
        others = remaining
    return parts

"""The differences between the recipes of two runs, setting by setting, and the runs whose recipes are most alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, NamedTuple

from app import page_text
from merging.methods.factor_rules import rules_text
from merging.models.model_references import EXPERTS, PRETRAINED, expert_key
from merging.recipes.recipe import Exemplars, Recipe, TestData
from merging.recipes.step import Step
from merging.study.runs.edit_pairs import read_recipe
from merging.study.runs.run import Run, have_same_models

ABSENT, METHOD = "—", "Method"
MAX_NAMED_DIFFERENCES = 3  # in a sentence
# Steps that a sentence does not name, because their settings are clear without them.
UNTITLED_STEPS = ("Exemplars", "Images to learn from", "Models", "Quantiles", "Evaluation")
DIGEST_DIGITS = 12  # digits of a checkpoint's digest that are shown


class RecipeDifference(NamedTuple):
    """One setting in which two runs differ."""

    step: str
    setting: str
    a: str
    b: str


def has_known_methods(run: Run) -> bool:
    """Whether this version knows every method of a run."""
    return read_recipe(run) is not None


def list_differences(a: Run, b: Run) -> list[RecipeDifference]:
    """All differences between two merges: steps, parameters, exemplars, checkpoints, benchmark.

    If this version does not know a method of a recipe, only checkpoints and benchmarks are compared.
    """
    differences: list[RecipeDifference] = []
    recipe_a, recipe_b = read_recipe(a), read_recipe(b)
    if recipe_a is not None and recipe_b is not None:
        differences += [
            *_edit_differences(recipe_a.edits, recipe_b.edits),
            *_merge_differences(recipe_a.merge, recipe_b.merge),
        ]
        differences += [
            *_adapt_differences(recipe_a.adapt, recipe_b.adapt),
            *_setting_differences(recipe_a, recipe_b, a, b),
        ]
    return [*differences, *_checkpoint_differences(a, b), *_evaluation_differences(a, b)]


def measure_distance(differences: Sequence[RecipeDifference]) -> int:
    """The distance between two recipes: a different method counts more than a different value, a merge most of all."""
    weights = {("Merge", METHOD): 3, ("Edit", METHOD): 2, ("Adapt", METHOD): 2}
    return sum(weights.get((line.step, line.setting), 1) for line in differences)


def differences_in_words(differences: Sequence[RecipeDifference]) -> str:
    """The changes from A to B in one sentence: 'Adds DARE; TIES: density 0.2 → 0.3'."""
    omitted_count = len(differences) - MAX_NAMED_DIFFERENCES
    phrases = [
        _difference_in_words(difference, with_step=previous is None or previous.step != difference.step)
        for previous, difference in zip([None, *differences], differences[:MAX_NAMED_DIFFERENCES], strict=False)
    ] + [f"and {omitted_count} more"] * (omitted_count > 0)
    sentence = "; ".join(phrases) or "the same recipe"
    return sentence[0].upper() + sentence[1:]


def _difference_in_words(difference: RecipeDifference, with_step: bool) -> str:
    if difference.setting != METHOD:
        step = f"{difference.step}: " if with_step and difference.step not in UNTITLED_STEPS else ""
        return f"{step}{difference.setting.lower()} {difference.a} → {difference.b}"
    if difference.a == ABSENT:
        return f"adds {difference.b}"
    return (
        f"removes {difference.a}"
        if difference.b == ABSENT
        else f"{_title_without_values(difference.b)} instead of {_title_without_values(difference.a)}"
    )


def _title_without_values(step: str) -> str:
    """A method's title without the values in parentheses, which would make the sentence too long for its card."""
    return step.partition(" (")[0]


def find_nearest_runs(run: Run, candidates: Sequence[Run]) -> list[tuple[Run, list[RecipeDifference]]]:
    """Other runs on the same experts with their differences, the nearest first."""
    pairs = [
        (candidate, list_differences(run, candidate))
        for candidate in candidates
        if candidate.id != run.id and have_same_models(run, candidate)
    ]
    return sorted(pairs, key=lambda pair: (pair[0].per_task != run.per_task, measure_distance(pair[1])))


def _edit_differences(a: Sequence[Step], b: Sequence[Step]) -> Iterator[RecipeDifference]:
    matcher = SequenceMatcher(None, [step.key for step in a], [step.key for step in b], autojunk=False)
    for kind, first, end, other_first, other_end in matcher.get_opcodes():
        pairs = zip_longest(a[first:end], b[other_first:other_end])
        for step_a, step_b in pairs:
            if kind == "equal":
                yield from _parameter_differences(step_a, step_b)
            else:
                yield RecipeDifference(
                    "Edit", METHOD, *(page_text.step_words(step) if step else ABSENT for step in (step_a, step_b))
                )


def _merge_differences(a: Step, b: Step) -> Iterator[RecipeDifference]:
    if a.key == b.key:
        yield from _parameter_differences(a, b)
    else:
        yield RecipeDifference("Merge", METHOD, page_text.step_words(a), page_text.step_words(b))


def _adapt_differences(a: Step | None, b: Step | None) -> Iterator[RecipeDifference]:
    if a is not None and b is not None and a.key == b.key:
        yield from _parameter_differences(a, b)
    elif a is not None or b is not None:
        yield RecipeDifference("Adapt", METHOD, *(page_text.step_words(step) if step else ABSENT for step in (a, b)))


def _parameter_differences(a: Step, b: Step) -> Iterator[RecipeDifference]:
    title = page_text.method_title(a.key)
    for name, bound in a.params.bounds().items():
        yield from _value_difference(title, bound.label, a.params.values()[name], b.params.values()[name])


def _setting_differences(a: Recipe, b: Recipe, run_a: Run, run_b: Run) -> Iterator[RecipeDifference]:
    for name, bound in Exemplars.bounds().items():
        values = [recipe.exemplars.values()[name] if recipe.exemplars else ABSENT for recipe in (a, b)]
        yield from _value_difference("Exemplars", bound.label, *values)
    for name, bound in TestData.bounds().items():
        values = [recipe.test_data.values()[name] if recipe.test_data else ABSENT for recipe in (a, b)]
        yield from _value_difference(
            "Images to learn from", bound.label, *(page_text.TEST_DATA_WORDS.get(v, v) for v in values)
        )
    yield from _value_difference("Models", "Activation", *(recipe.activation or "from the files" for recipe in (a, b)))
    yield from _value_difference(
        "Models", "Architecture", *(recipe.architecture or "from the files" for recipe in (a, b))
    )
    # "Dead" scalars are those of unused text tensors; without any, the setting has no effect.
    if any(run.sizes["dead"] for run in (run_a, run_b)):
        yield from _value_difference("Quantiles", "Count unused text tensors", a.count_dead_params, b.count_dead_params)


def _value_difference(step: str, setting: str, a: Any, b: Any) -> Iterator[RecipeDifference]:
    if a != b:
        texts = [page_text.value_in_words(value) for value in (a, b)]
        yield RecipeDifference(step, setting, *(texts if texts[0] != texts[1] else map(_exact_text, (a, b))))


def _exact_text(value: Any) -> str:
    """The exact text of a value whose usual text equals another value's."""
    return rules_text(value) if isinstance(value, tuple) else repr(value)


def _checkpoint_differences(a: Run, b: Run) -> Iterator[RecipeDifference]:
    if set(a.experts) != set(b.experts):
        yield RecipeDifference(
            "Experts", "Merged by one run only", *(_exclusive_experts(*pair) for pair in ((a, b), (b, a)))
        )
    elif a.experts != b.experts:
        yield RecipeDifference("Experts", "Order", *(page_text.join_words(run.experts) for run in (a, b)))
    for name in (PRETRAINED, *(expert_key(name) for name in a.experts if name in b.experts)):
        digests = [run.inputs.get(name, ABSENT)[:DIGEST_DIGITS] for run in (a, b)]
        if digests[0] != digests[1]:
            yield RecipeDifference("Checkpoint", name.removeprefix(EXPERTS), *digests)


def _exclusive_experts(run: Run, other_run: Run) -> str:
    exclusive = [name for name in run.experts if name not in other_run.experts]
    return page_text.join_words(exclusive) if exclusive else ABSENT


def _evaluation_differences(a: Run, b: Run) -> Iterator[RecipeDifference]:
    if a.benchmark and b.benchmark and a.benchmark != b.benchmark:
        yield RecipeDifference("Evaluation", "Benchmark", a.benchmark[:DIGEST_DIGITS], b.benchmark[:DIGEST_DIGITS])


def incomparable_in_words(a: Run, b: Run) -> list[str]:
    """Sentences on the numbers of two runs that cannot be compared; empty if all can. B may be a reference model."""
    sentences, is_b_merge = [], b.kind == "merge"
    if is_b_merge and a.inputs.get("pretrained") != b.inputs.get("pretrained"):
        sentences.append(
            "They start from different pretrained models: changes of the weights are relative to each run's own, and "
            "features are in different spaces."
        )
    if is_b_merge and set(a.experts) != set(b.experts):
        shared = [name for name in a.experts if name in b.experts]
        sentences.append(
            f"They merge different experts, {len(shared)} of which both merge. In-domain means are over data sets that "
            "are in domain for both; an H-score cannot be compared. Charts show the experts that both merge."
        )
    if a.benchmark and b.benchmark and a.benchmark != b.benchmark:
        sentences.append(
            "They were evaluated on different versions of the benchmark, so their stored scores cannot be compared."
        )
    return sentences + page_text.marks_in_words([a, b])

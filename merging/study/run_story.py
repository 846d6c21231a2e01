"""What one merge did, in three to six sentences computed from what is stored, each with its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from merging.base.text import first_few, plural, printable, size_text
from merging.images.benchmarks.metrics import summary_of
from merging.study.analysis.measurement_registry import find_measurement, find_refusal
from merging.study.analysis.measurement_store import StoredMeasurement, find_measurement_result
from merging.study.analysis.storage_accounting import HEADS, storage_table
from merging.study.paper_facts.accuracy_facts import compare_averages
from merging.study.paper_facts.comparison import compare_shares
from merging.study.runs.edit_pairs import find_same_saliency, read_recipe
from merging.study.runs.run import REPORTING_SPLIT, SALIENCY, Run

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.runs.run_store import Store

MAX_SENTENCES = 6
# What the numbers of a fact are based on.
COUNTED, INDEPENDENT, PAIRED = "counted in full", "images, assuming independence", "the same images, resampled"
SAMPLED, ESTIMATED = "a sample of images", "an estimate to first order"
OUT_OF_DOMAIN = "out of domain"  # the average in the tables of changes
COEFFICIENT_COLUMNS = {"expert", "tensor", "coefficient"}
MAX_SPARSE_SHARE, MIN_LARGE_SIZE = 0.95, 1.01  # of the scalars, and relative to one model; told below and from these
Score = Mapping[str, Any]  # a row of a table of scores


@dataclass(frozen=True)
class RunFact:
    """A sentence about a run, plain text, and its ``numbers``; shares are fractions, changes of accuracy are points.

    ``page`` and ``view`` show the same. ``block`` (a section), ``tensor``, ``expert`` and ``task`` are what it names. A
    fact without a sentence needs ``measurement``; one with a sentence is an estimate that this would replace.
    """

    sentence: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    basis: str = COUNTED
    block: str = ""
    tensor: str = ""
    expert: str = ""
    task: str = ""
    measurement: str = ""
    key: str = ""
    page: str = ""
    view: str = ""


@dataclass(frozen=True)
class RunEvidence:
    """A run and what is stored about it; ``stored`` are the runs among which its references are looked up.

    Without a ``benchmark`` no measurement is found. ``titles`` of tasks replace those in the scores.
    """

    run: Run
    stored: Sequence[Run]
    store: Store
    benchmark: Benchmark | None = None
    titles: Mapping[str, str] = field(default_factory=dict)

    def find(self, key: str, run: Run | None = None) -> StoredMeasurement | None:
        """The stored measurement of the run or of another one; None if there is none."""
        stored_on = self.benchmark
        return stored_on and find_measurement_result(key, self.store, stored_on, (run or self.run).id)

    def can_measure(self, key: str) -> bool:
        """Whether the run can have a measurement."""
        measurement, recipe = find_measurement(key), read_recipe(self.run)
        if self.benchmark is None or recipe is None or find_refusal(measurement, self.run.network):
            return False
        if key == "pairs":
            return len(self.run.experts) > 1
        is_refused = self.run.adapt and (key == "put_back" or (key == "drift" and recipe.is_routed))
        return self.run.has_scores and bool(self.run.adapt if key == "modules" else not is_refused)

    @cached_property
    def scores(self) -> dict[str, Score]:
        """The run's scores, as ``read_scores``."""
        return read_scores(self.run)

    def references(self, kind: str) -> list[Run]:
        """The evaluations of models that the run merged, on the same benchmark: "pretrained" or "expert"."""
        inputs = self.run.inputs.items()
        runs = [run for run in self.stored if run.kind == kind and run.has_scores and run.inputs]
        return [run for run in runs if run.benchmark == self.run.benchmark and run.inputs.items() <= inputs]

    def title(self, task: str) -> str:
        """A task in words; invisible characters are escaped."""
        return printable(str(self.titles.get(task) or self.scores.get(task, {}).get("title") or task))


def read_scores(run: Run) -> dict[str, Score]:
    """{task: score} of a run on the reporting half, of the tasks that have images."""
    rows: list[Score] = [] if run.scores is None else run.scores.to_dict("records")
    reported = [row for row in rows if row["split"] == REPORTING_SPLIT and row["n"] and row["accuracy"] >= 0]
    return {str(row["task"]): row for row in reported}


def describe_masks(evidence: RunEvidence) -> RunFact | None:
    """The tensors that the final mask keeps, or without such a mask the scalars that a sparse merge changes."""
    run = evidence.run
    if holder := run if SALIENCY in run.tables else find_same_saliency(run, evidence.stored):
        by_tensor = holder.table(SALIENCY).groupby("tensor", sort=False)
        numel, by_any, by_all = by_tensor["numel"].first(), by_tensor["final"].any(), by_tensor["final"].all()
        kept, common, n = int(by_any.sum()), int(by_all.sum()), int(numel.sum())
        share = float(numel[by_any].sum()) / n
        whose = f" for at least one expert, {common} for all of them" if common < kept else ""
        sentence = f"It keeps {kept} of {plural(len(numel), 'tensor')}{whose}: {100 * share:.1f}% of {n:,} scalars."
        return RunFact(sentence, {"kept": kept, "common": common, "tensors": len(numel), "share": share, "n": n})
    tensors = run.plain_table("tensors") if "tensors" in run.tables else {"kept_numel": [], "numel": []}
    changed, n = (int(sum(tensors[name])) for name in ("kept_numel", "numel"))
    if not 0 < changed < MAX_SPARSE_SHARE * n:
        return None
    where = " in at least one of its models" if run.per_task else ""
    sentence = f"It changes {100 * changed / n:.1f}% of {n:,} scalars{where}."
    return RunFact(sentence, {"changed": changed, "share": changed / n, "n": n})


def compare_with_pretrained(evidence: RunEvidence) -> RunFact | None:
    """Points gained or lost against the pretrained model in and out of domain; without its scores the accuracies."""
    run, reference = evidence.run, next(iter(evidence.references("pretrained")), None)
    other_scores = read_scores(reference) if reference else evidence.scores
    tasks = [task for task in evidence.scores if task in other_scores]
    scores = [[(t, table[t]["accuracy"], table[t]["n"]) for t in tasks] for table in (evidence.scores, other_scores)]
    own, other = (summary_of(rows, run.experts, {}) for rows in scores)
    paired = _resample_difference(evidence, reference, tasks) if reference else {}
    phrases: list[str] = []
    numbers: dict[str, float] = {}
    for domain, scope in (("in", "in domain"), ("out", OUT_OF_DOMAIN)):
        change, count, n = (
            compare_averages(own, other, domain),
            *(getattr(own, f"{k}_{domain}") for k in ("tasks", "n")),
        )
        points, (low, high) = change.difference, paired.get(domain, (change.low, change.high))
        sample, interval = f"{plural(count, 'task')}, n = {n:,}", f"95% interval {_signed(low)} to {_signed(high)}"
        if not count:
            continue
        numbers |= {f"tasks_{domain}": count, f"n_{domain}": n, f"accuracy_{domain}": change.first}
        if reference is None:
            phrases.append(f"{change.first:.1f}% {scope} ({sample})")
            continue
        numbers |= {f"change_{domain}": points, f"low_{domain}": low, f"high_{domain}": high}
        verb = f"{'gains' if points > 0 else 'loses'} {abs(points):.1f} points {scope} ({interval}; {sample})"
        unclear = f"shows no clear difference {scope} ({_signed(points)} points, {interval}; {sample})"
        phrases.append(unclear if low <= 0 <= high else verb)
    opening = "Compared with the pretrained model, it" if reference else "Its mean accuracy is"
    known = " In domain each image's task must be known." if run.needs_task else ""
    learned = " † It learned, without labels, on these images." if run.adapts_on_test else ""
    sentence = f"{opening} {' and '.join(phrases)}.{known}{learned}" if phrases else ""
    return RunFact(sentence, numbers, PAIRED if paired else INDEPENDENT) if sentence else None


def _resample_difference(evidence: RunEvidence, other: Run, tasks: Sequence[str]) -> dict[str, tuple[float, float]]:
    """{"in" or "out": interval of the difference from another run, in points}; empty without predictions of both.

    Predictions that differ from the scores, because another processor rounds otherwise, are not used.
    """
    before, after = evidence.find("predictions", other), evidence.find("predictions", evidence.run)
    if not before or not after or before.notes.get("differing") or after.notes.get("differing"):
        return {}
    from merging.study.analysis.agreement import INSIDE, OUTSIDE, compare_accuracies
    from merging.study.measurements.predictions import read_answers

    assert evidence.benchmark is not None  # predictions were found
    first, second = (read_answers(measurement, evidence.benchmark) for measurement in (before, after))
    shared = [task for task in tasks if task in first and task in second]
    right = {t: (first[t].is_right.mean(axis=0), second[t].is_right.mean(axis=0)) for t in shared}
    is_inside = {
        True: [t for t in shared if t in evidence.run.experts],
        False: [t for t in shared if t not in evidence.run.experts],
    }
    rows = compare_accuracies(right, is_inside[True], is_inside[False], with_h_score=False).to_dict("records")
    names = {INSIDE: "in", OUTSIDE: "out"}
    return {names[r["scope"]]: (100 * r["low"], 100 * r["high"]) for r in rows if r["scope"] in names}


def find_largest_loss(evidence: RunEvidence) -> RunFact | None:
    """The task on which the run is furthest below the task's own expert; equal ones share the sentence."""
    return _describe_tasks(evidence, is_closest=False)


def find_closest_task(evidence: RunEvidence) -> RunFact | None:
    """The task on which the run is closest to the task's own expert; None if all tasks are equally close."""
    return _describe_tasks(evidence, is_closest=True)


def _describe_tasks(evidence: RunEvidence, is_closest: bool) -> RunFact | None:
    experts = {run.experts[0]: run for run in evidence.references("expert")}
    pairs = {t: (read_scores(run).get(t), evidence.scores.get(t)) for t, run in experts.items()}
    below = {
        task: compare_shares((expert["correct"], expert["n"]), (own["correct"], own["n"]), f"n = {own['n']:,}")
        for task, (expert, own) in pairs.items()
        if expert and own
    }
    ranks = {t: round(-abs(c.difference) if is_closest else c.difference, 9) for t, c in below.items()}
    if not ranks or (is_closest and len(set(ranks.values())) == 1):
        return None
    tasks = [task for task in ranks if ranks[task] == max(ranks.values())]
    task, several = tasks[0], len(tasks) > 1
    points, low, high = (getattr(below[task], name) for name in ("difference", "low", "high"))
    if paired := _resample_difference(evidence, experts[task], [task]).get("in"):
        low, high = -paired[1], -paired[0]
    names, of_tasks = first_few(map(evidence.title, tasks)), plural(len(below), "task")
    opening = f"{names} {'pay' if several else 'pays'} most of {of_tasks}:"
    if is_closest:
        opening = f"{names} {'stay' if several else 'stays'} closest to {'their experts' if several else 'its expert'}:"
    elif len(below) == 1 or points <= 0:
        opening = (
            f"On {names} it is" if len(below) == 1 else f"None of {of_tasks} is below its expert; on {names} it is"
        )
    distance = f"{abs(points):.1f} points {'below' if points > 0 else 'above'} its expert"
    sample = f"n = {sum(evidence.scores[name]['n'] for name in tasks):,}"
    detail = sample if several else f"{below[task].second:.1f}% against {below[task].first:.1f}%, {sample}"
    if points and low <= 0 <= high:
        detail += f"; no clear difference, 95% interval {_signed(-high)} to {_signed(-low)}"
    sentence = f"{opening} {distance if round(points, 9) else 'as accurate as its expert'} ({detail})."
    numbers = {"below": points, "low": low, "high": high, "tasks": len(below), "n": evidence.scores[task]["n"]}
    numbers |= {"accuracy": below[task].second, "expert": below[task].first}
    return RunFact(sentence, numbers, PAIRED if paired else INDEPENDENT, task=task, expert=task)


def describe_modules(evidence: RunEvidence, stored: StoredMeasurement) -> RunFact | None:
    """What the modules of an adapt give on images that they did not learn from."""
    numbers: dict[str, float]
    if "oracle" in stored.tables:
        rows = stored.table("oracle")
        numbers = {name: 100 * float(rows[name].mean()) for name in ("merged", "routed", "oracle")}
        text = (
            "Its modules take the mean accuracy in domain from {merged:.1f}% to {routed:.1f}% ({oracle:.1f}% if tasks "
        )
        text += "were known"
    elif "confusion" in stored.tables:
        rows = stored.table("confusion")
        rows = rows[rows["task"] == rows["expert"]]
        share = float((rows["share"] * rows["n"]).sum() / rows["n"].sum())
        numbers = {"own": 100 * share, "chance": 100 / len(evidence.run.experts)}
        text = "Its router prefers the image's own expert for {own:.1f}% of images in domain ({chance:.1f}% by chance"
    else:
        rows = stored.table("feature_shift")
        numbers = {name: float(rows[f"cosine_{name}"].mean()) for name in ("before", "after")}
        text = (
            "Its modules take the mean distance of features from experts' from {before:.3f} to {after:.3f} (1 − cosine"
        )
    numbers |= {"tasks": len(rows), "n": int(rows["n"].sum())}
    sentence = f"{text.format(**numbers)}; {plural(len(rows), 'task')}, n = {numbers['n']:,})."
    return RunFact(sentence, numbers, SAMPLED) if len(rows) else None


def describe_coefficients(evidence: RunEvidence) -> RunFact | None:
    """The range of the learned coefficients, and the expert with the largest; pruned tensors have none."""
    run = evidence.run
    names = [n for n in run.tables if n.startswith("coefficients") and set(run.columns(n)) >= COEFFICIENT_COLUMNS]
    rows = run.table(names[0]).dropna(subset=["coefficient"]) if names else None
    if rows is None or (rows := rows[~rows["pruned"].astype(bool)] if "pruned" in rows else rows).empty:
        return None
    values, means = rows["coefficient"], rows.groupby("expert", sort=False)["coefficient"].mean()
    low, high, mean, top = (float(value) for value in (values.min(), values.max(), values.mean(), means.max()))
    expert = str(means.idxmax()) if len(means) > 1 else ""
    most = f"; those of {evidence.title(expert)} are largest on average ({top:.2f})" if expert else ""
    count = plural(len(values), "coefficient")
    sentence = f"It learned {count} from {low:.2f} to {high:.2f}, {mean:.2f} on average{most}."
    numbers = {"low": low, "high": high, "mean": mean, "expert_mean": top, "n": len(values)}
    return RunFact(sentence, numbers, expert=expert)


def describe_size(evidence: RunEvidence) -> RunFact | None:
    """What a user of the merge needs, if it is more than one model; heads, which every merge needs, are left out."""
    run = evidence.run
    if "tensors" not in run.tables or not run.sizes.get("files"):
        return None
    rows = storage_table(run)
    parts = rows[(rows["account"] == "deploy") & (rows["part"] != HEADS)].groupby("part", sort=False)["bytes"].sum()
    size, one = float(parts.sum()), run.sizes["files"] / (len(run.experts) if run.per_task else 1)
    listed = ", ".join(f"{part} {size_text(float(part_bytes))}" for part, part_bytes in parts.items())
    sentence = f"A user of it needs {size_text(size)}, {size / one:.2f} times one model: {listed}."
    return RunFact(sentence, {"bytes": size, "times": size / one}) if size >= MIN_LARGE_SIZE * one else None


def find_drifting_block(evidence: RunEvidence, stored: StoredMeasurement) -> RunFact | None:
    """The block in which the distance of class-token features from the experts' grows most, on average over tasks."""
    rows = stored.table("cumulative").dropna(subset=["cosine"])
    rows = rows[(rows["model"] == "merged") & (rows["token"] == "class")]
    means = rows.groupby("position")["cosine"].mean().sort_index()
    sections = rows.drop_duplicates("position").set_index("position")["place"].astype(str)
    growth = means.diff()[sections[means.index].str.startswith("block ").to_numpy()].dropna()
    if len(growth) < 2 or not growth.max() > 0:
        return None
    block, after = sections[growth.idxmax()], float(means[growth.idxmax()])
    before, tasks, n = after - float(growth.max()), rows["task"].nunique(), int(rows.drop_duplicates("task")["n"].sum())
    sentence = f"Features drift most in {block}: there the class token's mean distance from the experts' (1 − cosine) "
    sentence += f"grows from {before:.3f} to {after:.3f} ({plural(tasks, 'task')}, n = {n:,}, choosing half)."
    return RunFact(sentence, {"before": before, "after": after, "tasks": tasks, "n": n}, SAMPLED, block=block)


def find_best_reset(evidence: RunEvidence, stored: StoredMeasurement) -> RunFact | None:
    """The block or tensor that gains most, out of domain if there is such a task, when it is put back to pretrained."""
    rows = stored.table("changes")
    rows, scope = _select_average(rows[rows["level"].isin(["block", "tensor"])], "change")
    if rows.empty:
        return None
    best = rows.sort_values("level", kind="stable").sort_values("change", kind="stable", ascending=False).iloc[0]
    name, level, images, tried = str(best["name"]), str(best["level"]), int(stored.notes["images"]), len(rows)
    points, low, high = (100 * float(best[column]) for column in ("change", "low", "high"))
    part = _section_text(name) if level == "block" else printable(name)
    sample = f"95% interval {_signed(low)} to {_signed(high)}; measured on {images} images a task, n = {best['n']:,}"
    sentence = f"Putting {part} back would give {_signed(points)} points {scope} ({sample}; best of {tried} tried)."
    if low <= 0:
        sentence = f"Nothing clearly gains {scope} when it is put back; best of {tried} is {part}: {_signed(points)} points ({sample})."
    numbers = {"change": points, "low": low, "high": high, "images": images, "tried": tried, "n": int(best["n"])}
    return replace(RunFact(sentence, numbers, SAMPLED), **{level: name})


def estimate_best_reset(evidence: RunEvidence, stored: StoredMeasurement) -> RunFact | None:
    """The tensor whose putting back raises the mean margin most, to first order."""
    rows, scope = _select_average(stored.table("changes"), "put_back")
    if rows.empty or not (margin := float(rows["put_back"].max())) > 0:
        return None
    tensor, images = str(rows.loc[rows["put_back"].idxmax(), "tensor"]), int(stored.notes["images"])
    sentence = (
        f"Putting {printable(tensor)} back would raise the mean margin {scope} most, by {margin:.4f} (cosines; an "
    )
    sentence += f"estimate to first order on {images} images a task)."
    return RunFact(sentence, {"margin": margin, "images": images, "tensors": len(rows)}, ESTIMATED, tensor=tensor)


def _select_average(rows: pd.DataFrame, column: str) -> tuple[pd.DataFrame, str]:
    """The rows of the average out of domain, or in domain if there is no other task, and its name."""
    scope = OUT_OF_DOMAIN if (rows["over"] == OUT_OF_DOMAIN).any() else "in domain"
    return rows[(rows["over"] == scope) & rows[column].notna()], scope


def describe_move(evidence: RunEvidence) -> RunFact | None:
    """How far the merge moved the weights relative to their norm, and the section that it moved most."""
    run = evidence.run
    rows = run.table("tensors").sort_values("order", kind="stable") if "tensors" in run.tables else None
    if rows is None or not (rows["pretrained_norm"] > 0).any():
        return None
    norms = rows.set_index("section")[["change_norm", "pretrained_norm"]].dropna()
    by_section = (norms**2).groupby(level=0, sort=False).sum() ** 0.5
    moves = (
        by_section["change_norm"] / by_section["pretrained_norm"].where(by_section["pretrained_norm"] > 0)
    ).dropna()
    change, pretrained = (float((norms[name] ** 2).sum()) ** 0.5 for name in norms)
    block, n = str(moves.idxmax()) if len(moves) > 1 and change else "", int(rows["numel"].sum())
    numbers = {"move": change / pretrained, "block_move": float(moves.max()), "tensors": len(rows), "n": n}
    most = f", most in {_section_text(block)}: by {100 * numbers['block_move']:.1f}%" if block else ""
    sample = f"{plural(len(rows), 'tensor')}, {n:,} scalars{', mean square over its models' if run.per_task else ''}"
    subject = "Without its modules, it" if run.adapt else "It"
    sentence = f"{subject} moves the weights by {100 * numbers['move']:.1f}% of their norm{most} ({sample})."
    return RunFact(sentence if change else f"{subject} leaves the weights pretrained ({sample}).", numbers, block=block)


def find_sign_conflicts(evidence: RunEvidence, stored: StoredMeasurement) -> RunFact | None:
    """The section in which the largest share of entries that both experts of a pair change has opposite signs."""
    tensors, pairs = stored.table("tensors").sort_values("order"), stored.table("pairs")
    joined = tensors[["order", "section"]].merge(pairs, on="order")
    sums = joined.groupby("section", sort=False)[["opposed_1", "both_1"]].sum()
    shares = (sums["opposed_1"] / sums["both_1"].where(sums["both_1"] > 0)).dropna()
    if shares.empty:
        return None
    section, share, count = str(shares.idxmax()), float(shares.max()), len(pairs.drop_duplicates(["first", "second"]))
    n = int(sums["both_1"][section])
    sentence = (
        f"Before any edit, signs conflict most in {_section_text(section)}: {100 * share:.1f}% of {n:,} entries that "
    )
    sentence += f"both experts of a pair change are opposed, {_signed(100 * share - 50)} points beyond random signs "
    sentence += f"({plural(count, 'pair')})."
    return RunFact(sentence, {"share": share, "beyond": share - 0.5, "pairs": count, "n": n}, block=section)


def find_largest_update(evidence: RunEvidence, stored: StoredMeasurement) -> RunFact | None:
    """The expert whose task vector has the largest norm, beside the smallest one."""
    norms = stored.table("experts").groupby("expert", sort=False)["square"].sum() ** 0.5
    if len(norms) < 2 or not norms.max() > norms.min():
        return None
    (largest, smallest), (high, low) = (norms.idxmax(), norms.idxmin()), (float(norms.max()), float(norms.min()))
    sentence = f"{evidence.title(str(largest))} has the largest update of {len(norms)} experts: norm {high:.2f}, the "
    sentence += f"smallest, of {evidence.title(str(smallest))}, {low:.2f}."
    return RunFact(sentence, {"norm": high, "smallest": low, "experts": len(norms)}, expert=str(largest))


def _section_text(section: str) -> str:
    name = printable(section)
    return name if name[-1:].isdigit() else f"the {name}"


def _signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


class FactKind(NamedTuple):
    """A kind of fact: how it is found, by ``find_fact`` from the evidence, and from ``measurement`` if it needs one."""

    key: str
    page: str
    view: str
    find_fact: Callable[..., RunFact | None]
    measurement: str = ""


KINDS = (  # the most telling first
    FactKind("masks", "masks", "", describe_masks),
    FactKind("accuracy", "scores", "runs", compare_with_pretrained),
    FactKind("largest_loss", "scores", "runs", find_largest_loss),
    FactKind("modules", "learning", "modules", describe_modules, "modules"),
    FactKind("coefficients", "learning", "coefficients", describe_coefficients),
    FactKind("size", "scores", "runs", describe_size),
    FactKind("drift", "drift", "by depth", find_drifting_block, "drift"),
    FactKind("put_back", "drift", "put back", find_best_reset, "put_back"),
    FactKind("closest_task", "scores", "runs", find_closest_task),
    FactKind("move", "compare", "charts", describe_move),
    FactKind("signs", "conflicts", "experts against experts", find_sign_conflicts, "pairs"),
    FactKind("update", "conflicts", "experts against experts", find_largest_update, "pairs"),
)


def tell_story(evidence: RunEvidence) -> list[RunFact]:
    """At most ``MAX_SENTENCES`` facts with sentences, and between them those that need a measurement first.

    Raises:
        StoreError: a stored table is missing or damaged.
    """
    facts: list[RunFact] = []
    for kind in KINDS if evidence.run.kind == "merge" else ():
        if sum(bool(fact.sentence) for fact in facts) == MAX_SENTENCES:
            break
        fact, needed = None, kind.measurement
        stored = evidence.find(needed) if needed else None
        if stored or not needed:
            fact = kind.find_fact(evidence, *([stored] if stored else []))
        else:
            if needed == "put_back" and (estimate := evidence.find("first_order")):
                fact = estimate_best_reset(evidence, estimate)
            if evidence.can_measure(needed) and all(other.measurement != needed for other in facts):
                fact = replace(fact or RunFact(), measurement=needed)
        if fact:
            facts.append(replace(fact, key=kind.key, page=kind.page, view=kind.view))
    return facts

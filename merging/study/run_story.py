"""What one merge did, in three to six sentences computed from what is stored, each with its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from merging.base.text import first_few, plural, printable, size_text
from merging.images.benchmarks.answers import Scored, compare_scored
from merging.images.benchmarks.paired_scores import IN_DOMAIN, OUT_OF_DOMAIN, Correctness
from merging.study.analysis.measurement_registry import find_measurement, find_refusal
from merging.study.analysis.measurement_store import StoredMeasurement, find_measurement_result
from merging.study.analysis.opposed_signs import share_opposed
from merging.study.analysis.storage_accounting import HEADS, storage_table
from merging.study.runs.edit_pairs import find_same_saliency, read_recipe
from merging.study.runs.run import REPORTING_SPLIT, SALIENCY, Run
from merging.study.runs.run_answers import read_correctness

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.runs.run_store import Store

MAX_SENTENCES = 6
MIN_MODELS = 1.01  # the smallest stored size that is told, in models


@dataclass(frozen=True)
class RunFact:
    """A sentence about a run, plain text, and its ``numbers``; shares are fractions, changes of accuracy are points.

    ``page`` and ``view`` show the same; on the page of the run, ``view`` is a quantity of its map. ``block`` (a
    section), ``tensor``, ``expert`` and ``task`` are what the fact names. A fact without a sentence needs
    ``measurement``; one with a sentence is an estimate that this would replace.
    """

    sentence: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
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
    _correctness: dict[Path, Correctness | None] = field(default_factory=dict, init=False, compare=False, repr=False)

    def find_correctness(self, run: Run) -> Correctness | None:
        """Which images a run answers right, read once; None without answers or a benchmark. Raises StoreError."""
        if run.path not in self._correctness:
            self._correctness[run.path] = None if self.benchmark is None else read_correctness(run, self.benchmark)
        return self._correctness[run.path]

    def find(self, key: str, run: Run | None = None) -> StoredMeasurement | None:
        """The stored measurement of the run or of another one; None if there is none."""
        benchmark, run_id = self.benchmark, (run or self.run).id
        return None if benchmark is None else find_measurement_result(key, self.store, benchmark, run_id)

    def can_measure(self, key: str) -> bool:
        """Whether the run can have one of the measurements that facts need."""
        run, recipe = self.run, read_recipe(self.run)
        if self.benchmark is None or recipe is None or find_refusal(find_measurement(key), run.network):
            return False
        refuses_adapt = key == "put_back" or (key == "drift" and recipe.is_routed)
        return len(run.experts) > 1 if key == "pairs" else run.has_scores and not (run.adapt and refuses_adapt)

    def references(self, kind: str) -> list[Run]:
        """The evaluations on the same benchmark of models that the run merged, "pretrained" or "expert"."""
        own = self.run
        runs = [run for run in self.stored if run.kind == kind and run.has_scores and run.benchmark == own.benchmark]
        return [run for run in runs if run.inputs and run.inputs.items() <= own.inputs.items()]

    def title(self, task: str) -> str:
        """A task in words; invisible characters are escaped."""
        return printable(str(self.titles.get(task) or read_scores(self.run).get(task, {}).get("title") or task))


def read_scores(run: Run) -> dict[str, Any]:
    """{task: row of the scores} of a run on the reporting half, of the tasks that have images."""
    rows: list[Any] = [] if run.scores is None else run.scores.to_dict("records")
    return {str(r["task"]): r for r in rows if r["split"] == REPORTING_SPLIT and r["n"] > 0 and r["accuracy"] >= 0}


def describe_masks(evidence: RunEvidence) -> RunFact | None:
    """The tensors that the final mask keeps, and their share of the scalars; None if the run has no such mask."""
    run = evidence.run
    holder = run if SALIENCY in run.tables else find_same_saliency(run, evidence.stored)
    if holder is None:
        return None
    by_tensor = holder.table(SALIENCY).groupby("tensor", sort=False)
    numel, by_any, by_all = by_tensor["numel"].first(), by_tensor["final"].any(), by_tensor["final"].all()
    kept, common, n, share = int(by_any.sum()), int(by_all.sum()), int(numel.sum()), numel[by_any].sum() / numel.sum()
    whose = f" for at least one expert, {common} for all" if common < kept else ""
    sentence = f"It keeps {kept} of {plural(len(numel), 'tensor')}{whose}: {share:.1%} of {n:,} scalars."
    return RunFact(sentence, {"kept": kept, "common": common, "tensors": len(numel), "share": share, "n": n})


def compare_with_pretrained(evidence: RunEvidence) -> RunFact | None:
    """Points gained or lost in and out of domain against the pretrained model; None if its scores are not stored."""
    run, reference = evidence.run, next(iter(evidence.references("pretrained")), None)
    rows = {} if reference is None else compare_runs(evidence, reference)
    phrases, numbers = list[str](), dict[str, float]()
    for domain, scope in (("in", IN_DOMAIN), ("out", OUT_OF_DOMAIN)):
        if (row := rows.get(scope)) is None:
            continue
        count, n, points, low, high = (row[name] for name in ("tasks", "n", "difference", "low", "high"))
        sample = f"{_interval_text(low, high)}{plural(count, 'task')}, n = {n:,}"
        if math.isnan(low):
            phrases.append(f"differs by {_signed(points)} points {scope} (no interval; {sample})")
        elif low <= 0 <= high:
            phrases.append(f"shows no clear difference {scope} ({_signed(points)} points, {sample})")
        else:
            phrases.append(f"{'gains' if points > 0 else 'loses'} {abs(points):.1f} points {scope} ({sample})")
        values = {"change": points, "low": low, "high": high, "tasks": count, "n": n}
        numbers |= {f"{name}_{domain}": value for name, value in values.items()}
    opening = f"{'With its modules, compared' if run.adapt else 'Compared'} with the pretrained model, it"
    known = " In domain each image's task must be known." if run.needs_task else ""
    learned = " † It learned, without labels, on these images." if run.adapts_on_test else ""
    return RunFact(f"{opening} {' and '.join(phrases)}.{known}{learned}", numbers) if phrases else None


def compare_runs(evidence: RunEvidence, other: Run, only: str = "") -> dict[str, dict[str, Any]]:
    """{average: row of ``compare_models``} of the run minus another one, in points; or of ``only`` one task.

    Without the answers of both to each image, intervals are NaN.
    """
    import pandas as pd

    tasks = [task for task in read_scores(evidence.run) if task in read_scores(other) and only in ("", task)]

    def read_scored(run: Run) -> Scored:
        answers = evidence.find_correctness(run)
        right = None if answers is None else {task: answers[task] for task in tasks if task in answers}
        return Scored(pd.DataFrame(read_scores(run)[task] for task in tasks), right)

    table = compare_scored(
        read_scored(evidence.run),
        read_scored(other),
        evidence.run.experts,
        only=[only] if only else [IN_DOMAIN, OUT_OF_DOMAIN],
    )
    percent = ["accuracy", "reference", "difference", "low", "high"]
    table[percent] = (100 * table[percent]).round(9)
    rows: list[Any] = table.to_dict("records")
    return {str(row["over"]): row for row in rows}


def compare_with_experts(evidence: RunEvidence, *, closest: bool = False) -> RunFact | None:
    """The task furthest below its own expert, or closest to it, unless all are equally close; equal ones are tied."""
    scores, experts = read_scores(evidence.run), {run.experts[0]: run for run in evidence.references("expert")}
    merged = [task for task in evidence.run.experts if task in experts and task in scores]  # this order decides ties
    rows = {task: compare_runs(evidence, experts[task], task).get(task) for task in merged}
    below = {task: -row["difference"] for task, row in rows.items() if row is not None}
    ranks = {task: round(-abs(points) if closest else points, 9) for task, points in below.items()}
    if not ranks or (closest and len(set(ranks.values())) == 1):
        return None
    tasks = [task for task in ranks if ranks[task] == max(ranks.values())]
    names, of_tasks, is_one = first_few(map(evidence.title, tasks)), plural(len(below), "task"), len(tasks) == 1
    row, points, n = rows[tasks[0]] or {}, below[tasks[0]], sum(scores[task]["n"] for task in tasks)
    low, high, own, of_expert = -row["high"], -row["low"], row["accuracy"], row["reference"]
    opening = f"{names} {'pays' if is_one else 'pay'} most of {of_tasks}:"
    if closest:
        opening = f"{names} {'stays closest to its expert' if is_one else 'stay closest to their experts'}:"
    elif len(below) == 1 or points <= 0:
        opening = f"On {names} it is" if len(below) == 1 else f"None of {of_tasks} is below its expert; {names} is"
    distance = f"{abs(points):.1f} points {'below' if points > 0 else 'above'}" if points else "level with"
    detail = f"{own:.1f}% against {of_expert:.1f}%, n = {n:,}" if is_one else f"n = {n:,}"
    if is_one and points and low <= 0 <= high:
        detail += f"; no clear difference, {_interval_text(-high, -low).removesuffix('; ')}"
    numbers = {"below": points, "low": low, "high": high, "accuracy": own, "expert": of_expert, "n": n}
    sentence = f"{opening} {distance} {'its expert' if not closest else 'it' if is_one else 'them'} ({detail})."
    return RunFact(sentence, {**numbers, "tasks": len(below), "tied": len(tasks)}, task=tasks[0], expert=tasks[0])


def describe_coefficients(evidence: RunEvidence) -> RunFact | None:
    """The range of the learned coefficients, and the expert with the largest; pruned tensors have none."""
    run = evidence.run
    names = [n for n in run.tables if n.startswith("coefficients") and {"expert", "tensor"} <= set(run.columns(n))]
    rows = run.table(names[0]).dropna(subset=["coefficient"]) if names else None
    if rows is None or (rows := rows[~rows["pruned"].astype(bool)] if "pruned" in rows else rows).empty:
        return None
    values, means = rows["coefficient"], rows.groupby("expert", sort=False)["coefficient"].mean()
    low, high, mean, top = (float(value) for value in (values.min(), values.max(), values.mean(), means.max()))
    expert = str(means.idxmax()) if len(means) > 1 else ""
    most = f"; those of {evidence.title(expert)} are largest on average ({top:.2f})" if expert else ""
    sentence = f"It learned {len(values):,} coefficients from {low:.2f} to {high:.2f}, {mean:.2f} on average{most}."
    return RunFact(sentence, {"low": low, "high": high, "mean": mean, "top": top, "n": len(values)}, expert=expert)


def describe_size(evidence: RunEvidence) -> RunFact | None:
    """What a user of the merge needs, if it is more than one model; heads, which every merge needs, are left out."""
    run = evidence.run
    if "tensors" not in run.tables or not run.sizes.get("files"):
        return None
    rows, one_model = storage_table(run), run.sizes["files"] / (len(run.experts) if run.per_task else 1)
    parts = rows[(rows["account"] == "deploy") & (rows["part"] != HEADS)].groupby("part", sort=False)["bytes"].sum()
    size, models = float(parts.sum()), float(parts.sum()) / one_model
    listed = ", ".join(f"{part} {size_text(float(part_size))}" for part, part_size in parts.items())
    sentence = f"A user of it needs {size_text(size)}, {models:.2f} times one model: {listed}."
    return RunFact(sentence, {"bytes": size, "models": models}) if models >= MIN_MODELS else None


def find_drifting_block(evidence: RunEvidence, stored: StoredMeasurement) -> RunFact | None:
    """The block in which the distance of class-token features from the experts' grows most, on average over tasks."""
    rows = stored.table("cumulative").dropna(subset=["cosine"])
    rows = rows[(rows["model"] == "merged") & (rows["token"] == "class")]
    means = rows.groupby("position", as_index=False).agg(place=("place", "first"), after=("cosine", "mean"))
    means = means.assign(before=means["after"].shift(), growth=means["after"].diff())
    means = means[means["place"].str.startswith("block ")].dropna()
    if len(means) < 2 or not means["growth"].max() > 0:
        return None
    most = means.sort_values("growth", kind="stable", ascending=False).iloc[0]
    block, before, after = str(most["place"]), float(most["before"]), float(most["after"])
    tasks, n = rows["task"].nunique(), int(rows.drop_duplicates("task")["n"].sum())
    sentence = f"Features drift most in {block}: there the class token's mean distance from the experts' (1 − cosine) "
    sentence += f"grows from {before:.3f} to {after:.3f} ({plural(tasks, 'task')}, n = {n:,}, choosing half)."
    return RunFact(sentence, {"before": before, "after": after, "tasks": tasks, "n": n}, block=block)


def find_best_reset(evidence: RunEvidence, stored: StoredMeasurement) -> RunFact | None:
    """The block or tensor that gains most when it is put back to pretrained, out of domain if there are such tasks."""
    changes = stored.table("changes").sort_values("level", kind="stable")  # of equal changes a block before a tensor
    rows, scope = _select_average(changes[changes["level"].isin(["block", "tensor"])], "change")
    if rows.empty:
        return None
    best, tried, images = rows.iloc[int(rows["change"].argmax())].to_dict(), len(rows), int(stored.notes["images"])
    points, low, high = (100 * float(best[column]) for column in ("change", "low", "high"))
    names = {str(best["level"]): str(best["name"])}
    opening = "Putting {} back would give" if low > 0 else "Nothing put back clearly helps; the best is {} with"
    sample = f"{_interval_text(low, high)}measured on {images} images a task, n = {best['n']}"
    part = _section_text(names["block"]) if "block" in names else printable(names["tensor"])
    sentence = f"{opening.format(part)} {_signed(points)} points {scope} ({sample}; best of {tried} tried, "
    sentence += "not corrected for the choice)."
    numbers = {"change": points, "low": low, "high": high, "images": images, "tried": tried, "n": int(best["n"])}
    return RunFact(sentence, numbers, block=names.get("block", ""), tensor=names.get("tensor", ""))


def estimate_best_reset(stored: StoredMeasurement) -> RunFact | None:
    """The tensor whose putting back raises the mean margin most, to first order."""
    rows, scope = _select_average(stored.table("changes"), "put_back")
    if rows.empty or not rows["put_back"].max() > 0:
        return None
    best, images = rows.iloc[int(rows["put_back"].argmax())].to_dict(), int(stored.notes["images"])
    tensor, margin = str(best["tensor"]), float(best["put_back"])
    sentence = f"Putting {printable(tensor)} back would raise the mean margin {scope} most, by {margin:.4f} "
    sentence += f"(cosines; an estimate to first order on {images} images a task)."
    return RunFact(sentence, {"margin": margin, "images": images, "tensors": len(rows)}, tensor=tensor)


def _select_average(rows: pd.DataFrame, column: str) -> tuple[pd.DataFrame, str]:
    """The rows of the average out of domain, or in domain if there are no other tasks, and its name."""
    scope = OUT_OF_DOMAIN if (rows["over"] == OUT_OF_DOMAIN).any() else IN_DOMAIN
    return rows[(rows["over"] == scope) & rows[column].notna()], scope


def describe_move(evidence: RunEvidence) -> RunFact | None:
    """How far the merge moved the weights relative to their norm, and the section that it moved most."""
    run = evidence.run
    rows = run.table("tensors").dropna(subset=["change_norm", "pretrained_norm"]) if "tensors" in run.tables else None
    if rows is None or not rows["pretrained_norm"].sum() > 0:
        return None
    squares = rows.assign(change=rows["change_norm"] ** 2, pretrained=rows["pretrained_norm"] ** 2).sort_values("order")
    sums = squares.groupby("section", sort=False)[["change", "pretrained"]].sum()
    moves = (sums["change"] / sums["pretrained"].where(sums["pretrained"] > 0)).dropna() ** 0.5
    move, largest = float(sums["change"].sum() / sums["pretrained"].sum()) ** 0.5, float(moves.max())
    block, n = str(moves.idxmax()) if len(moves) > 1 and move else "", int(rows["numel"].sum())
    changed = float(rows["kept_numel"].sum()) / n
    most = f", most in {_section_text(block)}: by {largest:.1%}" if block else ""
    mean = ", root mean square over models" if run.per_task else ""
    verb = f"moves {changed:.1%} of the scalars, and the weights by {move:.1%} of their norm{most}{mean}"
    subject, verb = (
        "Without its modules, it" if run.adapt else "It",
        verb if move else "leaves the weights as pretrained",
    )
    numbers = {"move": move, "largest": largest, "changed": changed, "tensors": len(rows), "n": n}
    return RunFact(f"{subject} {verb} ({plural(len(rows), 'tensor')}, n = {n:,}).", numbers, block=block)


def describe_experts(evidence: RunEvidence, stored: StoredMeasurement) -> RunFact | None:
    """The section in which most of the entries that both of a pair change are opposed, and the largest update."""
    joined = stored.table("tensors")[["order", "section"]].merge(stored.table("pairs"), on="order").sort_values("order")
    shares = share_opposed(joined, "section").dropna()
    if shares.empty:
        return None
    norms = stored.table("experts").groupby("expert", sort=False)["square"].sum() ** 0.5
    block, expert, share = str(shares.idxmax()), str(norms.idxmax()), float(shares.max())
    n = int(joined.loc[joined["section"] == block, "both_1"].sum())
    norm, smallest = float(norms.max()), float(norms.min())
    sentence = f"Before any edit, signs conflict most in {_section_text(block)}: {share:.1%} of {n:,} entries that "
    sentence += f"both experts of a pair change are opposed (random signs: 50%); {evidence.title(expert)} has the "
    sentence += f"largest of {len(norms)} updates (norm {norm:.2f}, the smallest {smallest:.2f})."
    numbers = {"share": share, "n": n, "norm": norm, "smallest": smallest, "experts": len(norms)}
    return RunFact(sentence, numbers, block=block, expert=expert)


def _section_text(section: str) -> str:
    name = printable(section)
    return name if name[-1:].isdigit() else f"the {name}"


def _interval_text(low: float, high: float) -> str:
    """The interval of a difference of pairs, followed by a semicolon; empty if it is unknown."""
    return f"paired 95% interval {_signed(low)} to {_signed(high)}; " if low <= high else ""


def _signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


# Key, page, view, function, needed measurement; the most telling first.
KINDS: tuple[tuple[str, str, str, Callable[..., RunFact | None], str], ...] = (
    ("masks", "masks", "", describe_masks, ""),
    ("accuracy", "scores", "runs", compare_with_pretrained, ""),
    ("largest_loss", "scores", "runs", compare_with_experts, ""),
    ("coefficients", "learning", "coefficients", describe_coefficients, ""),
    ("size", "scores", "runs", describe_size, ""),
    ("drift", "drift", "by depth", find_drifting_block, "drift"),
    ("put_back", "drift", "put back", find_best_reset, "put_back"),
    ("closest_task", "scores", "runs", partial(compare_with_experts, closest=True), ""),
    ("move", "run", "moved", describe_move, ""),
    ("experts", "conflicts", "experts against experts", describe_experts, "pairs"),
)


def tell_story(evidence: RunEvidence) -> list[RunFact]:
    """At most ``MAX_SENTENCES`` facts with sentences, and between them those that need a measurement first.

    Raises:
        StoreError: a stored table is missing or damaged.
    """
    facts: list[RunFact] = []
    for key, page, view, find_fact, needed in KINDS if evidence.run.kind == "merge" else ():
        if sum(bool(fact.sentence) for fact in facts) == MAX_SENTENCES:
            break
        stored = evidence.find(needed) if needed else None
        if stored or not needed:
            fact = find_fact(evidence, *([stored] if stored else []))
        else:
            estimate = evidence.find("first_order") if needed == "put_back" else None
            fact = estimate_best_reset(estimate) if estimate else None
            if evidence.can_measure(needed):
                fact = replace(fact or RunFact(), measurement=needed)
        if fact:
            facts.append(replace(fact, key=key, page=page, view=view))
    return facts

"""The sentences of five bundled runs: every number is computed again from the files by plain numpy and pandas."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from merging.base import settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.run_story import RunEvidence, RunFact, tell_story
from merging.study.runs.run_store import Store

ROOT = settings.BUNDLED_FOLDER
LWPTV, SUM, LOT, LEARNED, PER_TASK = "f2fcd9a9", "3d708341", "ebf131c7", "6e678d6a", "95f0989b"
PENDING = "needs a measurement"
KEYS = {
    LWPTV: ["masks", "accuracy", "largest_loss", "drift", PENDING, "closest_task", "move"],
    SUM: ["accuracy", "largest_loss", "drift", "put_back", "closest_task", "move"],
    LOT: ["accuracy", "largest_loss", "drift", PENDING, "closest_task", "move", "experts"],
    LEARNED: ["accuracy", "largest_loss", "coefficients", PENDING, PENDING, "closest_task", "move", "experts"],
    PER_TASK: ["accuracy", "largest_loss", "size", PENDING, PENDING, "closest_task", "move", "experts"],
}
TOLD = [(run, key) for run, keys in KEYS.items() for key in keys if key != PENDING]
Expected = tuple[str, dict[str, float]]


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return Benchmark.load(ROOT)


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory, benchmark: Benchmark) -> dict[str, list[RunFact]]:
    store = Store(tmp_path_factory.mktemp("store"), libraries=(ROOT / "runs",))
    stored = store.list_runs()
    runs = {run.id[:8]: run for run in stored}
    return {name: tell_story(RunEvidence(runs[name], stored, store, benchmark)) for name in KEYS}


def folder_of(run: str) -> Path:
    return next((ROOT / "runs").glob(f"{run}*"))


def facts_of(run: str) -> dict[str, Any]:
    return dict(json.loads((folder_of(run) / "run.json").read_text()))


def find_run_folder(title: str) -> Path:
    folders = (ROOT / "runs").iterdir()
    return next(path for path in folders if json.loads((path / "run.json").read_text())["title"] == title)


def read_csv(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(next(folder.rglob(f"{name}.csv*")))


def measured_folder(key: str, run: str) -> Path:
    for path in (ROOT / "measured").iterdir():
        facts = json.loads((path / "measured.json").read_text())
        if facts["key"] == key and facts["run"].startswith(run):
            return path
    raise LookupError(key)


def reported(folder: Path) -> pd.DataFrame:
    scores = read_csv(folder, "scores")
    return scores[scores["split"] == "reporting"].set_index("task")


def signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


def masks(run: str, benchmark: Benchmark) -> Expected:
    table = read_csv(folder_of(run), "saliency")
    kept = set(table["tensor"][table["final"]])
    sizes = dict(zip(table["tensor"], table["numel"], strict=True))
    share = sum(sizes[name] for name in kept) / sum(sizes.values())
    n = sum(sizes.values())
    sentence = f"It keeps {len(kept)} of {len(sizes)} tensors: {100 * share:.1f}% of {n:,} scalars."
    return sentence, {"kept": len(kept), "common": len(kept), "tensors": len(sizes), "share": share, "n": n}


def predicted_right(folder: Path, benchmark: Benchmark) -> dict[str, np.ndarray[Any, Any]]:
    """The shares of the models that are right (n,), by data set, unpacked from the table of answers."""
    table = read_csv(folder, "answers")
    right = {}
    for row in table[table["split"] == "reporting"].itertuples():
        classes = np.frombuffer(zlib.decompress(base64.b64decode(row.predicted)), "<u2").reshape(-1, row.n)
        right[row.task] = (classes == benchmark.load_labels(row.task, "reporting")).mean(axis=0)
    return right


def resampled_interval(run: str, tasks: list[str], benchmark: Benchmark) -> tuple[float, float]:
    """A bootstrap by numpy, which draws the images of each task from a stream of the task's own."""
    before, after = (predicted_right(path, benchmark) for path in (find_run_folder("Pretrained"), folder_of(run)))
    changes = []
    for task in tasks:
        change = after[task] - before[task]
        stream = np.random.default_rng([0, zlib.crc32(task.encode()), len(change)])
        changes.append(change[stream.integers(len(change), size=(10_000, len(change)))].mean(axis=1))
    low, high = np.quantile(np.mean(changes, axis=0), [0.025, 0.975])
    return 100 * float(low), 100 * float(high)


def accuracy(run: str, benchmark: Benchmark) -> Expected:
    own, other = reported(folder_of(run)), reported(find_run_folder("Pretrained"))
    phrases, numbers = [], {}
    for name, is_inside in (("in", True), ("out", False)):
        tasks = [task for task in own.index if (task in facts_of(run)["experts"]) == is_inside]
        change = round(100 * (own["accuracy"][tasks].mean() - other["accuracy"][tasks].mean()), 9)
        low, high = resampled_interval(run, tasks, benchmark)
        n = int(own["n"][tasks].sum())
        sample = f"paired 95% interval {signed(low)} to {signed(high)}; {len(tasks)} tasks, n = {n:,}"
        scope = f"{name if is_inside else 'out of'} domain"
        if low <= 0 <= high:
            phrases.append(f"shows no clear difference {scope} ({signed(change)} points, {sample})")
        else:
            phrases.append(f"{'gains' if change > 0 else 'loses'} {abs(change):.1f} points {scope} ({sample})")
        numbers |= {f"change_{name}": change, f"low_{name}": low, f"high_{name}": high}
        numbers |= {f"tasks_{name}": len(tasks), f"n_{name}": n}
    known = " In domain each image's task must be known." if run == PER_TASK else ""
    return f"Compared with the pretrained model, it {' and '.join(phrases)}.{known}", numbers


def losses(run: str) -> pd.DataFrame:
    own, rows = reported(folder_of(run)), []
    for task in facts_of(run)["experts"]:
        title = own["title"][task]
        expert = reported(find_run_folder(f"Expert for {title}")).loc[task]
        rows.append((task, title, 100 * own["accuracy"][task], 100 * expert["accuracy"], int(own["n"][task])))
    table = pd.DataFrame(rows, columns=["task", "title", "own", "expert", "n"])
    return table.assign(below=(table["expert"] - table["own"]).round(9))


def wilson(share: float, n: int) -> tuple[float, float]:
    z = 1.959963984540054
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def task_numbers(run: str, row: Any, benchmark: Benchmark) -> dict[str, float]:
    """The loss of a task with Newcombe's interval of pairs (method 10), from the four counts of images."""
    own, expert = (
        predicted_right(folder, benchmark)[row.task]
        for folder in (folder_of(run), find_run_folder(f"Expert for {row.title}"))
    )
    e, f, g, h = (int(((expert == a) & (own == b)).sum()) for a, b in ((1, 1), (1, 0), (0, 1), (0, 0)))
    n, p, q = row.n, (e + f) / row.n, (e + g) / row.n
    (p_low, p_high), (q_low, q_high) = wilson(p, n), wilson(q, n)
    product, bottom = e * h - f * g, math.sqrt((e + f) * (g + h) * (e + g) * (f + h))
    phi = (max(product - n / 2, 0) if product > 0 else product) / bottom if bottom else 0
    low = p - q - math.sqrt((p - p_low) ** 2 - 2 * phi * (p - p_low) * (q_high - q) + (q_high - q) ** 2)
    high = p - q + math.sqrt((p_high - p) ** 2 - 2 * phi * (p_high - p) * (q - q_low) + (q - q_low) ** 2)
    return {"below": row.below, "low": 100 * low, "high": 100 * high, "accuracy": row.own, "expert": row.expert,
            "n": n, "tasks": 8, "tied": 1}  # fmt: skip


def largest_loss(run: str, benchmark: Benchmark) -> Expected:
    row = max(losses(run).itertuples(), key=lambda row: row.below)
    sentence = f"{row.title} pays most of 8 tasks: {row.below:.1f} points below its expert "
    return f"{sentence}({row.own:.1f}% against {row.expert:.1f}%, n = {row.n}).", task_numbers(run, row, benchmark)


def closest_task(run: str, benchmark: Benchmark) -> Expected:
    table = losses(run)
    rows = list(table[table["below"].abs() == table["below"].abs().min()].itertuples())
    first, n = rows[0], sum(row.n for row in rows)
    numbers = {**task_numbers(run, first, benchmark), "n": n, "tied": len(rows)}
    if len(rows) > 1:
        names = ", ".join(row.title for row in rows)
        return f"{names} stay closest to their experts: {abs(first.below):.1f} points below them (n = {n}).", numbers
    unclear = f"; no clear difference, paired 95% interval {signed(-numbers['high'])} to {signed(-numbers['low'])}"
    sentence = f"{first.title} stays closest to its expert: {abs(first.below):.1f} points below it "
    sentence += f"({first.own:.1f}% against {first.expert:.1f}%, n = {n}{unclear if numbers['low'] < 0 else ''})."
    return sentence, numbers


def coefficients(run: str, benchmark: Benchmark) -> Expected:
    table = read_csv(folder_of(run), "coefficients")
    values = table["coefficient"].to_numpy()
    means = {expert: values[(table["expert"] == expert).to_numpy()].mean() for expert in set(table["expert"])}
    top = max(means, key=lambda expert: float(means[expert]))
    title = reported(folder_of(run))["title"][top]
    sentence = (
        f"It learned {len(values)} coefficients from {values.min():.2f} to {values.max():.2f}, {values.mean():.2f} "
    )
    sentence += f"on average; those of {title} are largest on average ({means[top]:.2f})."
    numbers = {"low": values.min(), "high": values.max(), "mean": values.mean(), "top": means[top], "n": len(values)}
    return sentence, numbers


def size(run: str, benchmark: Benchmark) -> Expected:
    tensors, facts = read_csv(folder_of(run), "tensors"), facts_of(run)
    model, bits = facts["sizes"]["files"] / 8, np.ceil(tensors["numel"] / 8)
    encodings = [
        tensors["numel"] * tensors["itemsize"], bits + tensors["kept_numel"] * tensors["itemsize"],
        tensors["kept_numel"] * (4 + tensors["itemsize"]),
    ]  # fmt: skip
    vector, mask_bytes, rescalers = np.minimum.reduce(encodings).sum(), 8 * bits.sum(), 8 * 4
    total = model + vector + mask_bytes + rescalers
    parts = f"pretrained model {model / 1e6:.2f} MB, unified task vector {vector / 1e6:.2f} MB, masks "
    parts += f"{mask_bytes / 1e6:.2f} MB, rescalers {rescalers} bytes"
    sentence = f"A user of it needs {total / 1e6:.1f} MB, {total / model:.2f} times one model: {parts}."
    return sentence, {"bytes": total, "models": total / model}


def drift(run: str, benchmark: Benchmark) -> Expected:
    table = read_csv(measured_folder("drift", run), "cumulative")
    rows = table[(table["model"] == "merged") & (table["token"] == "class")]
    tasks = list(dict.fromkeys(rows["task"]))
    names = ["stem", *(f"block {b}" for b in range(6))]
    means = [np.mean([rows["cosine"][(rows["task"] == t) & (rows["place"] == name)] for t in tasks]) for name in names]
    block = int(np.argmax(np.diff(means)))
    before, after, n = float(means[block]), float(means[block + 1]), 240 * len(tasks)
    assert set(rows["n"]) == {240}
    sentence = f"Features drift most in block {block}: there the class token's mean distance from the experts' "
    sentence += f"(1 − cosine) grows from {before:.3f} to {after:.3f} ({len(tasks)} tasks, n = {n:,}, choosing half)."
    return sentence, {"before": before, "after": after, "tasks": len(tasks), "n": n}


def put_back(run: str, benchmark: Benchmark) -> Expected:
    folder = measured_folder("put_back", run)
    table, notes = read_csv(folder, "changes"), json.loads((folder / "measured.json").read_text())["notes"]
    rows = [row for row in table.itertuples() if row.over == "out of domain" and row.level in ("tensor", "block")]
    best = max(rows, key=lambda row: row.change)
    points, low, high = 100 * best.change, 100 * best.low, 100 * best.high
    interval = f"paired 95% interval {signed(low)} to {signed(high)}"
    sentence = f"Putting {best.name} back would give {signed(points)} points out of domain ({interval}; "
    sentence += f"measured on {notes['images']} images a task, n = {best.n}; best of {len(rows)} tried, "
    sentence += "not corrected for the choice)."
    numbers = {"change": points, "low": low, "high": high, "images": notes["images"], "tried": len(rows), "n": best.n}
    return sentence, numbers


def move(run: str, benchmark: Benchmark) -> Expected:
    table = read_csv(folder_of(run), "tensors")
    change, norm = table["change_norm"].to_numpy() ** 2, table["pretrained_norm"].to_numpy() ** 2
    by_section = {}
    for section in set(table["section"]):
        chosen = (table["section"] == section).to_numpy()
        by_section[section] = math.sqrt(change[chosen].sum() / norm[chosen].sum())
    block = max(by_section, key=lambda section: by_section[section])
    total, n = math.sqrt(change.sum() / norm.sum()), int(table["numel"].sum())
    changed = table["kept_numel"].sum() / n
    mean = ", root mean square over models" if run == PER_TASK else ""
    sentence = (
        f"It moves {100 * changed:.1f}% of the scalars, and the weights by {100 * total:.1f}% of their norm, most "
    )
    sentence += f"in {block}: by {100 * by_section[block]:.1f}%{mean} ({len(table)} tensors, n = {n:,})."
    numbers = {"move": total, "largest": by_section[block], "changed": changed, "tensors": len(table), "n": n}
    return sentence, numbers


def experts(run: str, benchmark: Benchmark) -> Expected:
    folder = measured_folder("pairs", "8b985238")  # of a run of the same experts
    tensors, pairs, squares = (read_csv(folder, name) for name in ("tensors", "pairs", "experts"))
    sections = dict(zip(tensors["order"], tensors["section"], strict=True))
    opposed, both = {}, {}  # by section
    for row in pairs.itertuples():
        section = sections[row.order]
        opposed[section] = opposed.get(section, 0) + row.opposed_1
        both[section] = both.get(section, 0) + row.both_1
    block = max(both, key=lambda section: opposed[section] / both[section])
    norms = {name: math.sqrt(squares["square"][squares["expert"] == name].sum()) for name in set(squares["expert"])}
    top = max(norms, key=lambda name: norms[name])
    share, low, high = opposed[block] / both[block], min(norms.values()), norms[top]
    sentence = (
        f"Before any edit, signs conflict most in {block}: {100 * share:.1f}% of {both[block]:,} entries that both "
    )
    sentence += "experts of a pair change are opposed (random signs: 50%); "
    sentence += (
        f"{reported(folder_of(run))['title'][top]} has the largest of {len(norms)} updates (norm {high:.2f}, the "
    )
    sentence += f"smallest {low:.2f})."
    return sentence, {"share": share, "n": both[block], "norm": high, "smallest": low, "experts": len(norms)}


COMPUTED_AGAIN: dict[str, Callable[[str, Benchmark], Expected]] = {
    "masks": masks, "accuracy": accuracy, "largest_loss": largest_loss, "coefficients": coefficients, "size": size,
    "drift": drift, "put_back": put_back, "closest_task": closest_task, "move": move, "experts": experts,
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("run", KEYS)
def test_a_run_has_at_most_six_sentences_and_asks_for_what_is_not_stored(
    run: str, stories: dict[str, list[RunFact]]
) -> None:
    facts = stories[run]
    assert [fact.key if fact.sentence else PENDING for fact in facts] == KEYS[run]
    assert [fact.measurement for fact in facts if not fact.sentence] == [
        key for key in ("drift", "put_back") if key not in KEYS[run]
    ]
    assert 3 <= sum(bool(fact.sentence) for fact in facts) <= 6
    assert all(fact.page for fact in facts)


@pytest.mark.parametrize(("run", "key"), TOLD)
def test_every_number_of_a_sentence_is_computed_again(
    run: str, key: str, stories: dict[str, list[RunFact]], benchmark: Benchmark
) -> None:
    fact = next(fact for fact in stories[run] if fact.key == key)
    sentence, numbers = COMPUTED_AGAIN[key](run, benchmark)
    assert fact.sentence == sentence
    assert dict(fact.numbers) == pytest.approx(numbers, rel=1e-5, abs=1e-6)
    assert re.search(r"\d", sentence)


def test_facts_name_what_a_page_can_link(stories: dict[str, list[RunFact]]) -> None:
    facts = {(run, fact.key): fact for run, story in stories.items() for fact in story}
    assert facts[LWPTV, "largest_loss"].task == "flags"
    assert facts[LOT, "move"].block == "block 1"
    assert facts[SUM, "put_back"].block == "block 0"
    assert facts[LEARNED, "coefficients"].expert == facts[LEARNED, "experts"].expert == "flags"
    assert (facts[SUM, "drift"].block, facts[SUM, "drift"].page, facts[SUM, "drift"].view) == (
        "block 5", "drift", "by depth",
    )  # fmt: skip

"""Every fact against the stored tables, recomputed in plain arithmetic."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from merging.study.analysis import measurement_store
from merging.study.run_queue import RunQueue
from merging.study.sweeps import sweep_session as sweeping
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.known_points import KnownPoints
from merging.teaching.fact import Fact
from merging.teaching.fact_kinds import FACT_KINDS
from merging.teaching.facts.fact_computation import compute_fact
from merging.teaching.facts.score_facts import read_score_rows
from merging.teaching.lesson import FactSpec
from merging.teaching.lesson_context import LessonContext

Context = LessonContext


def fact(context: Context, name: str, **arguments: Any) -> Fact:
    return compute_fact(FactSpec(name, arguments), context)


def scores(context: Context, alias: str) -> list[dict[str, Any]]:
    """Rows of a run's file of scores on the reporting half, read without the program."""
    path = context.require_run(alias).path
    file = next(iter(path.glob("scores.csv*")))
    raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    rows = csv.DictReader(io.StringIO(raw.decode()))
    return [row for row in rows if row["split"] == "reporting"]


def mean(context: Context, alias: str, inside: bool) -> float:
    shares = [
        int(row["correct"]) / int(row["n"])
        for row in scores(context, alias)
        if (row["task"] in context.benchmark.experts) == inside
    ]
    return sum(shares) / len(shares)


def table(context: Context, key: str, name: str, alias: str = "") -> pd.DataFrame:
    run = context.require_run(alias) if alias else context.merges[0]
    of_benchmark = key in ("exemplars", "task_counts")
    found = measurement_store.find_measurement_result(
        key, context.store, context.benchmark, "" if of_benchmark else run.id
    )
    assert found is not None
    return found.table(name)


def array(context: Context, alias: str) -> Any:
    found = measurement_store.find_measurement_result(
        "features", context.store, context.benchmark, context.require_run(alias).id
    )
    assert found is not None
    return found.array("features").astype(np.float64)


def agreement(context: Context, density: float, coins: bool) -> float:
    rows = table(context, "signs", "votes")
    rows = rows[(rows["space"] == "weights") & (rows["density"] == density)]
    total = 0.0
    for votes, majority, count in zip(rows["votes"], rows["majority"], rows["count"], strict=True):
        if votes and not coins:
            total += count * majority / votes
        elif votes:
            total += count * sum(math.comb(votes, k) * max(k, votes - k) for k in range(votes + 1)) / votes / 2**votes
    return total / int(rows[rows["votes"] > 0]["count"].sum())


def kept(context: Context, ratio: float, scalars: bool) -> float:
    rows = context.require_run("lw").table("saliency")
    numels = dict(zip(rows["tensor"], rows["numel"], strict=True))
    final = set()
    for _, own in rows.groupby("expert"):
        limit = sorted(own["saliency"])[math.floor(len(own) * ratio + 1e-9)]
        final |= set(own["tensor"][own["saliency"] > limit])
    weight = {name: numel if scalars else 1 for name, numel in numels.items()}
    return sum(weight[name] for name in final) / sum(weight.values())


def cosine(context: Context) -> float:
    alone, pairs = table(context, "pairs", "experts"), table(context, "pairs", "pairs")
    norms = alone.groupby("expert")["square"].sum() ** 0.5
    dot = pairs[(pairs["first"] == "digits") & (pairs["second"] == "street")]["dot"].sum()
    return float(dot / norms["digits"] / norms["street"])


def survived(context: Context) -> float:
    rows = table(context, "signs", "elections")
    rows = rows[(rows["density"] == 0.2) & (rows["expert"] == "flags")]
    return float(rows["won"].sum() / rows["kept"].sum())


def final_drift(context: Context, alias: str) -> dict[str, float]:
    rows = table(context, "drift", "cumulative", alias)
    rows = rows[(rows["model"] == "merged") & (rows["place"] == "embedding") & (rows["token"] == "class")]
    return dict(zip(rows["task"], rows["cosine"].astype(float), strict=True))


def pearson(context: Context) -> float:
    own = {task: int(row["correct"]) / int(row["n"]) for task in context.benchmark.experts
           for row in csv_rows(context, task)}  # fmt: skip
    x, y = [], []
    for alias in ("ta", "lw"):
        drift = final_drift(context, alias)
        for row in scores(context, alias):
            if row["task"] in drift:
                x.append(drift[row["task"]])
                y.append(own[row["task"]] - int(row["correct"]) / int(row["n"]))
    return float(np.corrcoef(x, y)[0, 1])


def csv_rows(context: Context, task: str) -> list[dict[str, Any]]:
    run = context.references[task]
    assert run.scores is not None
    rows: list[dict[str, Any]] = run.scores.to_dict("records")
    return [row for row in rows if row["split"] == "reporting" and row["task"] == task]


def retained(context: Context) -> float:
    counts, experts = table(context, "task_counts", "counts"), table(context, "task_counts", "experts")
    own = dict(zip(experts["task"], experts["correct"] / experts["n"], strict=True))
    rows = counts[(counts["method"] == "Task Arithmetic") & (counts["size"] == 4)]
    shares = rows["correct"] / rows["n"] / rows["task"].map(own)
    return float(shares.groupby(rows["subset"]).mean().mean())


def exemplars(context: Context) -> float:
    rows = table(context, "exemplars", "accuracy")
    rows = rows[(rows["method"] == "LOT") & (rows["exemplars"] == 4)]
    return float((rows["correct"] / rows["n"]).groupby([rows["seed"], rows["task"]]).mean().mean())


def points(context: Context) -> list[dict[str, float]]:
    """Line, value, means in and out of domain of every point of the sweep over λ."""
    sweep = sweep_storage.find_sweep(context.store, context.find_id("lam"))
    rows, every = [], sweeping.plan_sweep(sweep, context.benchmark)
    known = KnownPoints(
        every, context.store, context.benchmark, sweep.sample.normalize_on(context.benchmark)
    ).read_points()
    for planned in every:
        point = known[planned.name]
        own = point.scores["task"].isin(list(context.benchmark.experts))
        shares = point.scores["correct"] / point.scores["n"]
        rows.append({"line": planned.point.line, "x": planned.point.values[0],
                     "in": float(shares[own].mean()), "out": float(shares[~own].mean())})  # fmt: skip
    return rows


def at(context: Context, value: float) -> float:
    return next(row["out"] for row in points(context) if row["line"] == 0 and row["x"] == value)


def bounded(context: Context) -> float:
    return max((row for row in points(context) if row["out"] >= 0.8), key=lambda row: row["in"])["x"]


def far(context: Context) -> float:
    return float(np.sqrt(((array(context, "ta") - array(context, "pretrained")) ** 2).sum(axis=1)).mean())


def cell(context: Context, key: str, of: str, value: str, **where: Any) -> float:
    rows = table(context, key, of, "ta")
    for column, wanted in where.items():
        rows = rows[rows[column] == wanted]
    assert len(rows) == 1
    return float(rows[value].iloc[0])


def ablated(context: Context) -> float:
    means = table(context, "ablation", "ablation", "ta").groupby("kind")["accuracy"].mean()
    return float(means["linear weights"] - means["nothing"])


def subset_accuracy(context: Context) -> tuple[list[str], dict[str, np.ndarray]]:
    """The experts, and the accuracy of every subset on each data set, from the bundled bits without the program."""
    for path in (context.benchmark.folder / "subsets").glob("*/subsets.json"):
        facts = json.loads(path.read_text())
        if len(facts["subsets"]) == 256:
            packed = np.load(io.BytesIO(gzip.decompress(path.with_name("right.npy.gz").read_bytes())))
            bits = np.unpackbits(packed, axis=1)[:, :256]
            starts = np.cumsum([0, *facts["images"].values()])
            return facts["experts"], {
                task: bits[start : start + n].mean(axis=0)
                for (task, n), start in zip(facts["images"].items(), starts, strict=False)
            }
    raise AssertionError("no subsets are bundled")


def joined(context: Context, task: str, expert: str) -> float:
    experts, accuracy = subset_accuracy(context)
    return float(accuracy[task][255] - accuracy[task][255 - (1 << experts.index(expert))])


def worst_share(context: Context) -> float:
    """The share of the cells whose change is at most the twelfth lowest."""
    experts = subset_accuracy(context)[0]
    changes = np.array([joined(context, task, expert) for task in experts for expert in experts if task != expert])
    return float((changes <= np.sort(changes)[11]).mean())


def brings(context: Context, task: str, expert: str) -> float:
    """The mean of what the expert adds over all 40,320 orders, by the size of the set before it."""
    experts, accuracy = subset_accuracy(context)
    bit, by_size = 1 << experts.index(expert), [[] for _ in range(8)]
    for subset in range(256):
        if not subset & bit:
            by_size[bin(subset).count("1")].append(accuracy[task][subset + bit] - accuracy[task][subset])
    return float(np.mean([np.mean(gains) for gains in by_size]))


def best_size(context: Context) -> float:
    experts, accuracy = subset_accuracy(context)
    inside = np.mean([accuracy[task] for task in experts], axis=0)
    outside = np.mean([values for task, values in accuracy.items() if task not in experts], axis=0)
    return float(bin(int(np.argmax(2 * inside * outside / (inside + outside)))).count("1"))


PLAIN: list[tuple[str, dict[str, Any], Callable[[Context], float]]] = [
    ("accuracy", {"run": "ta", "over": "out"}, lambda c: mean(c, "ta", False)),
    ("accuracy", {"run": "pretrained", "over": "in"}, lambda c: mean(c, "pretrained", True)),
    ("difference", {"run": "lw", "against": "ta", "over": "in"}, lambda c: mean(c, "lw", True) - mean(c, "ta", True)),
    ("difference", {"run": "lw", "against": "multitask", "over": "out"},
     lambda c: mean(c, "lw", False) - mean(c, "multitask", False)),
    ("h_score", {"run": "ta"}, lambda c: 2 / (1 / mean(c, "ta", True) + 1 / mean(c, "ta", False))),
    ("kept", {"run": "lw", "of": "scalars"}, lambda c: kept(c, 0.7, True)),
    ("kept", {"run": "ta", "of": "tensors", "ratio": 0.9}, lambda c: kept(c, 0.9, False)),
    ("norm", {"expert": "flags"},
     lambda c: float(table(c, "pairs", "experts").groupby("expert")["square"].sum()["flags"]) ** 0.5),
    ("agreement", {"density": 0.2}, lambda c: agreement(c, 0.2, False)),
    ("null", {"density": 0.2}, lambda c: agreement(c, 0.2, True)),
    ("survived", {"density": 0.2, "expert": "flags"}, survived),
    ("cosine", {"first": "digits", "second": "street"}, cosine),
    ("drift", {"run": "ta"}, lambda c: sum(final_drift(c, "ta").values()) / 8),
    ("correlation", {"runs": ["ta", "lw"]}, pearson),
    ("ablated", {"run": "ta", "kind": "linear weights"}, ablated),
    ("put_back", {"run": "ta", "over": "out", "part": "block 0"},
     lambda c: cell(c, "put_back", "changes", "change", name="block 0", over="out of domain")),
    ("retained", {"method": "Task Arithmetic", "experts": 4}, retained),
    ("exemplars", {"method": "LOT", "n": 4}, exemplars),
    ("swept", {"sweep": "lam", "at": 0.2, "over": "out"}, lambda c: at(c, 0.2)),
    ("best", {"sweep": "lam", "by": "in", "subject": "out", "least": 0.8, "of": "value"}, bounded),
    ("distance", {"run": "ta"}, far),
    ("neighbors", {"run": "ta"},
     lambda c: cell(c, "features", "separability", "correct", task="all")
     / cell(c, "features", "separability", "n", task="all")),
    ("separability", {"run": "ta", "task": "kana"},
     lambda c: cell(c, "features", "separability", "silhouette", task="kana")),
    ("trust", {"run": "ta", "perplexity": 30},
     lambda c: cell(c, "tsne", "quality", "trustworthiness", map="all", perplexity=30)),
    ("lens", {"run": "ta", "depth": 3},
     lambda c: cell(c, "depths", "accuracy", "accuracy", model="run", over="out of domain", depth=3)),
    ("joined", {"run": "ta", "task": "street", "expert": "land", "among": "all"},
     lambda c: joined(c, "street", "land")),
    ("worst_joined", {"run": "ta", "among": "all"}, worst_share),
    ("brings", {"run": "ta", "task": "flags", "expert": "flags"}, lambda c: brings(c, "flags", "flags")),
    ("brings", {"run": "ta", "task": "street", "expert": "textures"}, lambda c: brings(c, "street", "textures")),
    ("best_subset", {"run": "ta", "by": "h", "of": "size"}, best_size),
    ("restored", {"run": "ta", "depth": 2},
     lambda c: cell(c, "depths", "mended", "share", donor="reference", tokens="class", over="out of domain", depth=2)),
]  # fmt: skip


NUMBERED = [f"{name}-{number}" for number, (name, *_) in enumerate(PLAIN)]


@pytest.mark.parametrize(("name", "arguments", "plain"), PLAIN, ids=NUMBERED)
def test_a_fact_is_what_the_tables_say(small: Context, name: str, arguments: dict[str, Any], plain: Any) -> None:
    found = fact(small, name, **arguments)
    assert not found.missing
    assert found.value == pytest.approx(plain(small), abs=2e-7)
    assert not found.has_interval or found.low <= found.value <= found.high


def test_every_fact_over_tables_is_recomputed() -> None:
    assert {name for name, *_ in PLAIN} == {name for name, kind in FACT_KINDS.items() if not kind.reads_view}


def test_a_paired_interval_is_narrower_than_one_of_independent_models(small: Context) -> None:
    paired = fact(small, "difference", run="lw", against="ta", over="out")
    one, other = (fact(small, "accuracy", run=alias, over="out") for alias in ("lw", "ta"))
    apart = math.hypot(one.value - one.low, other.high - other.value)
    assert 0 < paired.value - paired.low < 0.9 * apart
    assert paired.half == "reporting" and paired.n == 6 * 480 + 370


def test_the_best_on_new_images_is_held_against_the_choosing_half(small: Context) -> None:
    chosen, reported, fallen = (
        fact(small, "best", sweep="lam", by="h", of=of) for of in ("score", "reported", "fallen")
    )
    assert (chosen.half, reported.half) == ("choosing", "reporting")
    assert fallen.value == pytest.approx(reported.value - chosen.value)
    assert reported.value == pytest.approx(fact(small, "h_score", run="lw").value)
    assert fact(small, "best", sweep="lam", by="h", of="points").text == "22"


def test_what_is_not_stored_says_what_to_measure(small: Context) -> None:
    unmeasured = fact(small, "put_back", run="lw", over="out")
    assert unmeasured.text == "not measured here"
    assert (unmeasured.measure, unmeasured.run) == ("put_back", small.find_id("lw"))
    assert "Run its recipe" in fact(small, "accuracy", run="nowhere", over="in").missing
    assert "Did you mean 'kana'?" in fact(small, "accuracy", run="ta", over="kanna").missing
    assert "has no point at 0.25" in fact(small, "swept", sweep="lam", at=0.25, over="in").missing


def test_runs_are_found_by_their_recipes(small: Context) -> None:
    assert small.find_id("chained") == small.find_id("lw") != small.find_id("ta")
    assert small.list_missing_runs() == ["nowhere"]
    shown = small.resolve_view({"runs": "@ta,@lw", "sweep": "@lam", "run": "@nowhere", "ratio": "0.7"})
    assert shown == {
        "runs": f"{small.find_id('ta')},{small.find_id('lw')}",
        "sweep": small.find_id("lam"),
        "ratio": "0.7",
    }


def test_the_view_decides_what_is_kept_now(small: Context) -> None:
    view = {"run": small.find_id("lw"), "ratio": "0.9", "shared_mask": "true"}
    shared = fact(small.with_view(view), "kept_now", of="tensors").value
    assert shared == pytest.approx(kept(small, 0.9, False))
    assert (
        fact(small.with_view({"run": view["run"][:6]}), "kept_now", of="tensors").value > shared
    )  # the run's own ratio
    for wrong in ({}, {"run": view["run"], "ratio": "x"}, {"run": "ffffffffffff"}, {"run": view["run"], "ratio": "7"}):
        assert fact(small.with_view(wrong), "kept_now", of="tensors").missing


def test_a_preview_and_painted_factors_are_read_from_the_view(small: Context) -> None:
    row = {"over": "out of domain", "accuracy": 0.8, "difference": 0.1, "low": 0.05, "high": 0.15, "n": 224}
    factors = pd.DataFrame(
        {"tensor": list("aabb"), "numel": [3, 3, 1, 1], "expert": list("xyxy"), "factor": [0.0, 0.0, 0.0, 0.5]}
    )
    seen = small.with_view({}, pd.DataFrame([row]), factors)
    assert fact(seen, "preview", over="out").long_text == "+10.0 points (+5.0 to +15.0, n = 224, choosing half)"
    assert fact(seen, "painted_now", of="scalars").value == 0.25
    assert fact(seen, "painted_now", of="count").value == 1
    rules = {"run": small.find_id("lw"), "painted_factors": "r.shift=0+r.norm_scale=0"}
    tensors = small.require_run("lw").table("tensors")
    share = 1 - tensors["role"].isin(["shift", "norm_scale"]).mean()
    assert fact(small.with_view(rules), "painted_now", of="tensors").value == pytest.approx(share)
    assert "Rule 1" in fact(small.with_view(rules | {"painted_factors": "b99=0"}), "painted_now", of="tensors").missing
    assert fact(small, "preview", over="out").missing and fact(small, "painted_now", of="count").missing


def test_cells_say_which_tasks_lose_most(small: Context) -> None:
    cells = fact(small, "worst_joined", run="ta", among="all").cells
    titles = {task.title: task.key for task in small.benchmark.tasks}
    changes = {(one.row, titles[one.column]): joined(small, one.row, titles[one.column]) for one in cells}
    marked = {(one.row, titles[one.column]) for one in cells if one.holds}
    assert marked == {pair for pair, change in changes.items() if change <= sorted(changes.values())[11]}
    names = fact(small, "best_subset", run="ta", by="h", of="names").name
    assert names.count(",") + 1 == best_size(small)


def test_cells_say_which_expert_keeps_which_tensor(small: Context) -> None:
    cells = fact(small, "kept", run="lw", of="cells").cells
    own = small.require_run("lw").table("saliency")
    assert {(one.row, one.column) for one in cells if one.holds} == set(
        own[own["kept"]][["expert", "tensor"]].itertuples(index=False, name=None)
    )
    assert len(cells) == len(own)


def test_the_lens_of_the_pretrained_model_is_that_of_every_merges_reference(small: Context) -> None:
    through = fact(small, "lens", run="pretrained", depth=6)
    assert through.value == pytest.approx(fact(small, "lens", run="ta", of="reference", depth=6).value)
    assert through.value == pytest.approx(mean(small, "pretrained", False), abs=0.01)
    assert fact(small, "lens", run="pretrained", depth=6, over="in").missing


def test_facts_and_stored_jobs_name_runs_as_lists_do(small: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    run = next(run for run in small.merges if run.title == "Ties")
    assert run.name == "TIES (sum, λ 0.3)"
    monkeypatch.setattr(LessonContext, "require_run", lambda _context, _alias: run)
    assert read_score_rows(small, "x")[2] == run.name
    runner = RunQueue(small.store)
    assert runner.get(run.id).title == run.name
    runner.close()

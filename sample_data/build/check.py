"""The acceptance table: what the benchmark must show, measured with the `merging` package on the reporting images.

Scaling coefficients are chosen on the choosing images, from one grid. A row whose method `merging` lacks says so and
decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sample_data.build import scalings
from sample_data.build.export import list_altered
from sample_data.build.measure import AVERAGING, LOT, MASKED, TASK_ARITHMETIC, TIES_MEAN, MeasuredModels
from sample_data.build.open_clip_gap import open_clip_gap
from sample_data.build.stored_models import Recipe, drift, paired_difference, percent, relative_size


@dataclass(frozen=True)
class Row:
    """One line of the table. `floor` and `goal` are None where the table sets none."""

    quantity: str
    value: str
    floor: bool | None = None
    goal: bool | None = None

    def __str__(self) -> str:
        word = {True: "PASS", False: "FAIL", None: " -- "}
        return f"floor {word[self.floor]}  goal {word[self.goal]}  {self.quantity}: {self.value}"


def _models(m: MeasuredModels) -> Iterator[Row]:
    inside, outside = percent(m.pretrained, m.inside), percent(m.pretrained, m.outside)
    yield Row("pretrained, in domain", f"{inside:.1f}", 35 <= inside <= 62, 40 <= inside <= 60)
    yield Row("pretrained, out of domain", f"{outside:.1f}", outside >= 68, outside >= 78)
    own, least = np.mean(list(m.own_accuracies.values())), min(m.own_accuracies.values())
    yield Row("experts, own task, mean", f"{own:.1f}", own >= 87, own >= 94)
    yield Row("experts, own task, least", f"{least:.1f}", least >= 74, least >= 88)
    drop = outside - np.mean([percent(found, m.outside) for found in m.experts.values()])
    yield Row("experts, out of domain, below pretrained", f"{drop:.1f} points", 5 <= drop <= 25, 5 <= drop <= 15)
    joint = percent(m.multitask, m.inside)
    yield Row("multi-task model, in domain", f"{joint:.1f}", joint >= 75, joint >= 88)
    sizes = {key: relative_size(m.bench.pretrained, model) for key, model in m.bench.experts.items()}
    text = ", ".join(f"{key} {size:.1f}" for key, size in sizes.items())
    yield Row("relative size of task vectors, %", text, None, max(sizes.values()) < 4)


def _best_merge(m: MeasuredModels) -> Iterator[Row]:
    label, row = max(scalings.reported_rows(m.all_scalings), key=lambda item: float(item[1]["in_domain"]))
    best = float(row["in_domain"])
    gain, gap = best - percent(m.pretrained, m.inside), np.mean(list(m.own_accuracies.values())) - best
    yield Row(f"best merge over pretrained, in domain ({label})", f"{gain:+.1f}", gain >= 12, gain >= 18)
    yield Row("best merge under the experts' mean", f"{gap:.1f}", gap >= 6)


def _lot(m: MeasuredModels) -> Iterator[Row]:
    found = {
        count: m.correct(Recipe(f"LOT 1.0, {count}", "lot", {"scaling": 1.0}, exemplars=count)) for count in (1, 16, 64)
    }
    gain, error = paired_difference(found[64], m.correct(AVERAGING), m.inside)
    yield Row("LOT over averaging, in domain, paired", f"{gain:+.1f} ± {1.96 * error:.1f}", gain >= 5, gain >= 8)
    more, near = (paired_difference(found[64], found[count], m.inside)[0] for count in (1, 16))
    yield Row("LOT, 64 over 1 exemplars", f"{more:+.1f}", more >= 4)
    yield Row("LOT, 64 over 16 exemplars", f"{near:+.1f}", abs(near) <= 2)


def _mask(m: MeasuredModels) -> Iterator[Row]:
    masked, plain = m.correct(MASKED.with_scaling(0.3)), m.correct(TASK_ARITHMETIC.with_scaling(0.3))
    gain, error = paired_difference(masked, plain, m.outside)
    yield Row(
        "lwptv then task arithmetic over task arithmetic, 0.3, out of domain",
        f"{gain:+.1f} ± {1.96 * error:.1f}",
        gain >= 8,
        gain >= 12,
    )
    inside, error = paired_difference(masked, plain, m.inside)
    yield Row("the same, in domain", f"{inside:+.1f} ± {1.96 * error:.1f}", inside >= -1.5)


def _drift(m: MeasuredModels) -> Iterator[Row]:
    recipes = (AVERAGING, TASK_ARITHMETIC, MASKED, TIES_MEAN, LOT)
    profiles, points = {}, []
    for recipe in recipes:
        weights, found = m.bench.merge(recipe), m.correct(recipe)
        per_task = [
            drift(m.bench.class_tokens(weights, key), m.bench.class_tokens(m.bench.experts[key], key))
            for key in m.inside
        ]
        profiles[recipe.title] = np.mean(per_task, axis=0)
        points += [
            (each[-1], m.own_accuracies[key] - percent(found, [key]))
            for key, each in zip(m.inside, per_task, strict=True)
        ]
        m.say(f"drift, {recipe.title}: " + " ".join(f"{value:.3f}" for value in profiles[recipe.title]))
    grows = all(bool((np.diff(profile) > 0).all()) for profile in profiles.values())
    yield Row("drift grows with depth, all methods", "yes" if grows else "no", grows)
    low, high = profiles[LOT.title][-1], profiles[AVERAGING.title][-1]
    yield Row("drift at the output, LOT under averaging", f"{low:.3f} < {high:.3f}", bool(low < high))
    r = float(np.corrcoef(np.array(points).T)[0, 1])
    yield Row(
        f"pooled correlation of output drift with accuracy lost, {len(points)} points", f"{r:.2f}", r >= 0.55, r >= 0.7
    )


def _retention(m: MeasuredModels) -> Iterator[Row]:
    random = np.random.default_rng(0)
    kept = {}
    for count in (2, 4, 8):
        subsets = [sorted(random.choice(m.inside, count, replace=False)) for _ in range(3 if count < 8 else 1)]
        shares = []
        for subset in subsets:
            found = m.bench.find_correct(m.bench.merge(AVERAGING, subset), subset)
            shares += [100 * percent(found, [key]) / m.own_accuracies[key] for key in subset]
        kept[count] = float(np.mean(shares))
    text = ", ".join(f"{count}: {share:.1f} %" for count, share in kept.items())
    yield Row("accuracy retained by averaging 2, 4, 8 experts", text, kept[2] - kept[8] >= 10)


def _loads(m: MeasuredModels) -> Iterator[Row]:
    wrong = list_altered(m.bench.folder)
    yield Row("files as the manifest says", ", ".join(wrong) or "all", not wrong)
    gap = open_clip_gap(m.bench.folder)
    yield Row("strict load into open_clip, largest feature difference", f"{gap:.1e}", gap < 1e-5)


def check_floors(folder: Path, say: Callable[[str], None]) -> bool:
    """Writes the table of scalings and prints that of floors and goals; true when no measured floor fails."""
    m = MeasuredModels(folder, say)
    scalings.write(folder, m.all_scalings)
    rows: list[Row] = []
    for part in (_loads, _models, _best_merge, _lot, _mask, _drift, _retention):
        try:
            rows += list(part(m))
        except Exception as problem:
            rows.append(Row(part.__name__.strip("_").replace("_", " "), f"not measured: {problem}"))
    for row in rows:
        say(str(row))
    return all(row.floor is not False for row in rows)

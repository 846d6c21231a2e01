"""Accuracies that papers print, in percent and as they print them.

They are of other models on other images than the bundled benchmark's, so they are never shown as if they were ours.
A chain here states what its paper states; what the paper leaves open is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

B32, L14 = "ViT-B/32", "ViT-L/14"
TASKS = ("SUN397", "Cars", "RESISC45", "EuroSAT", "SVHN", "GTSRB", "MNIST", "DTD")
OUTSIDE = (
    "CIFAR10", "CIFAR100", "EMNIST", "FashionMNIST", "FER2013", "Flowers102", "Food101", "KMNIST", "OxfordIIITPet",
    "PCAM", "RenderedSST2", "STL10", "ImageNet",
)  # fmt: skip
TUNED = "tuned on validation data"
ODD = "the printed average is not that of the printed accuracies"
PREPRINT = "CAT preprint"
SOURCES = {
    "LwPTV": "Zhang et al. Merging smarter, generalizing better. NeurIPS 2025",
    "LOT": "Sun et al. Towards minimizing feature drift in model merging. NeurIPS 2025",
    "DRM": "Chaichana et al. Decom-Renorm-Merge. 2025",
    PREPRINT: "Task arithmetic in trust region. arXiv:2501.15065v1",
    "TSV-M": "Averages of the authors' per-task result files",
    "WUDI": "The authors' README",
    "FusionBench": "Results in the documentation of FusionBench, on checkpoints of its own",
}

Steps = tuple[tuple[str, Mapping[str, Any]], ...]


class Printed(NamedTuple):
    """Averages in and out of domain, their H-score, and the accuracies behind the averages, where printed."""

    in_domain: float
    out_of_domain: float | None = None
    h_score: float | None = None
    tasks: tuple[float, ...] = ()  # in the order of TASKS
    outside: tuple[float, ...] = ()  # in the order of OUTSIDE


# Accuracy of each task's own expert. Papers do not share checkpoints; where only the average is known, tasks are empty.
ILHARCO, CHAICHANA, TALL, HUGGING_FACE = "Ilharco et al.", "Chaichana et al.", "TALL masks", "Hugging Face"
EXPERTS: Mapping[tuple[str, str], Printed] = {
    (ILHARCO, B32): Printed(90.5, 49.7, 64.2, (75.3, 77.7, 96.1, 99.7, 97.5, 98.7, 99.7, 79.4)),
    (ILHARCO, L14): Printed(94.2, 64.3, 76.4, (82.3, 92.4, 97.4, 100.0, 98.1, 99.2, 99.7, 84.1)),
    (CHAICHANA, B32): Printed(90.8, tasks=(75.0, 77.7, 98.5, 99.7, 97.5, 98.7, 99.7, 79.6)),
    (CHAICHANA, L14): Printed(94.3, tasks=(81.9, 92.3, 99.0, 99.9, 98.1, 99.2, 99.7, 84.4)),
    (TALL, B32): Printed(92.83),
    (HUGGING_FACE, B32): Printed(90.3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of a paper's table for one model.

    ``name`` is what the paper calls it, ``chain`` its steps with the parameters that the paper states, ``experts``
    whose checkpoints were merged. ``exemplars`` is how many per task it saw, None where that is not said or not needed.
    ``note`` says what the chain cannot; an ``unstated`` figure used values that the paper does not print.
    """

    name: str
    chain: Steps
    model: str
    printed: Printed
    source: str
    experts: str = ILHARCO
    exemplars: int | None = None
    note: str = ""
    unstated: bool = False
    normalized_as_printed: float | None = None

    @property
    def normalized(self) -> float | None:
        """Mean over tasks of the accuracy over the expert's, in percent; None where a part is not printed."""
        own = EXPERTS.get((self.experts, self.model), Printed(0.0)).tasks
        if self.normalized_as_printed is not None or not (own and self.printed.tasks):
            return self.normalized_as_printed
        ratios = [merged / expert for merged, expert in zip(self.printed.tasks, own, strict=True)]
        return 100 * sum(ratios) / len(ratios)

    def is_of(self, steps: Iterable[tuple[str, Mapping[str, Any]]]) -> bool:
        """Whether it is of a chain with these steps and values; values that its paper leaves open may be any."""
        found = tuple(steps)
        return [key for key, _ in self.chain] == [key for key, _ in found] and all(
            values.get(name) == value
            for (_, stated), (_, values) in zip(self.chain, found, strict=True)
            for name, value in stated.items()
        )


def _step(key: str, **params: Any) -> Steps:
    return ((key, params),)


def _both(
    name: str, chain: Steps, source: str, b32: Printed | None = None, l14: Printed | None = None,
    *, l14_chain: Steps = (), **said: Any,
) -> tuple[Figure, ...]:  # fmt: skip
    """The figures of one row of a table; ``l14_chain`` if the larger model was merged with other values."""
    rows = ((B32, chain, b32), (L14, l14_chain or chain, l14))
    return tuple(
        Figure(name=name, chain=steps, model=model, printed=printed, source=source, **said)
        for model, steps, printed in rows
        if printed
    )


AVERAGE = _step("weight_averaging")
TA = _step("task_arithmetic", scaling=0.3)
ANY_TA = _step("task_arithmetic")
TIES = _step("ties", density=0.2, aggregation="sum", scaling=0.3)
TIES_L14 = _step("ties", density=0.2, aggregation="sum", scaling=0.4)
TIES_MEAN = _step("ties", density=0.2, aggregation="mean", scaling=1.0)
DARE_TIES = _step("dare", drop_rate=0.8) + _step("ties", density=1.0, aggregation="mean", scaling=1.0)
PCB = _step("pcb", density=0.05, scaling=1.2)
LWPTV = _step("lwptv", prune_ratio=0.7, shared=True, score="deviation", granularity="tensor")
PWPTV = _step("lwptv", prune_ratio=0.7, shared=True, score="deviation", granularity="parameter")
OWN_MASKS = _step("lwptv", prune_ratio=0.7, shared=False, score="deviation", granularity="tensor")
MEAN_ABS = _step("lwptv", prune_ratio=0.7, shared=True, score="mean_abs", granularity="tensor")
OWN_MEAN_ABS = _step("lwptv", prune_ratio=0.7, shared=False, score="mean_abs", granularity="tensor")
DRM_H = _step("drm", direction="horizontal", density=0.2, scaling=1.0, renorm=True, elect=True, disjoint=True)
DRM_V = _step("drm", direction="vertical", density=0.2, scaling=1.0, renorm=True, elect=True, disjoint=True)


def _drm(**changed: Any) -> Steps:
    return _step("drm", **(dict(DRM_H[0][1]) | changed))


P = Printed
_LWPTV = "LwPTV, Tables 2 and 5"
_LWPTV_OOD = "LwPTV, Tables 3, 10 and 11"
_LOT = "LOT, Tables 1 and 2"
_DRM = "DRM, Tables 1, 10 and 11"

FROM_LWPTV: tuple[Figure, ...] = (
    *_both("Weight Averaging", AVERAGE, _LWPTV,
        P(65.8, 61.3, 63.5, (65.3, 63.4, 71.4, 71.7, 64.2, 52.8, 87.5, 50.1)),
        P(79.6, 67.7, 73.2, (72.1, 81.6, 82.6, 91.9, 78.2, 70.7, 97.1, 62.8))),
    *_both("Task Arithmetic", TA, _LWPTV,
        P(69.1, 51.3, 58.9, (55.2, 54.9, 66.7, 78.9, 80.2, 69.7, 97.3, 50.4),
          (76.3, 41.9, 28.5, 63.9, 26.3, 49.4, 55.8, 9.0, 75.4, 54.0, 53.4, 87.8, 45.0)),
        P(84.5, 66.3, 74.3, (73.9, 82.1, 86.6, 94.1, 87.9, 86.7, 98.9, 65.6))),
    *_both("Task Arithmetic w/ LwPTV", LWPTV + TA, _LWPTV,
        P(72.8, 60.9, 66.3, (66.8, 66.0, 77.2, 79.1, 78.3, 68.7, 92.3, 54.4),
          (88.3, 60.1, 30.4, 65.9, 36.5, 62.9, 79.9, 7.4, 85.4, 59.5, 59.0, 96.4, 60.6)),
        P(85.6, 67.9, 75.7, (74.7, 86.2, 89.3, 94.6, 86.7, 86.1, 98.8, 68.6))),
    *_both("Ties", TIES, _LWPTV,
        P(72.9, 58.0, 64.6, (65.0, 64.4, 74.8, 77.4, 81.2, 69.3, 96.5, 54.5)),
        P(86.0, 66.7, 75.1, (76.5, 85.0, 89.3, 95.7, 90.3, 83.3, 99.0, 68.8)), l14_chain=TIES_L14),
    *_both("Ties w/ LwPTV", LWPTV + TIES, _LWPTV,
        P(72.7, 61.3, 66.5, (67.6, 66.7, 77.4, 77.4, 77.7, 66.8, 92.4, 55.3)),
        P(86.9, 67.7, 76.1, (76.3, 87.4, 90.9, 95.1, 89.1, 87.3, 99.0, 70.5)), l14_chain=LWPTV + TIES_L14),
    *_both("PCB-Merging", PCB, _LWPTV,
        P(75.8, 53.2, 62.5, (63.8, 62.0, 77.1, 80.6, 87.5, 78.5, 98.7, 58.4)),
        P(87.6, 66.0, 75.3, (76.2, 86.0, 89.6, 95.9, 89.9, 92.3, 99.2, 71.4))),
    *_both("PCB-Merging w/ LwPTV", LWPTV + PCB, _LWPTV,
        P(77.3, 59.7, 67.4, (68.6, 67.7, 80.7, 83.0, 85.4, 77.2, 96.2, 60.0)),
        P(88.1, 67.5, 76.4, (76.8, 88.2, 91.1, 95.8, 89.2, 92.1, 99.1, 72.7))),
    *_both("TW AdaMerging", _step("adamerging", granularity="task"), _LWPTV,
        P(71.1, 53.2, 60.9, (58.0, 53.2, 68.8, 85.7, 81.1, 84.4, 92.4, 44.8)),
        P(84.3, 63.9, 72.7, (75.6, 83.5, 79.7, 90.3, 83.5, 96.5, 98.0, 67.3)), note="adapts on test data"),
    *_both("LW AdaMerging", _step("adamerging", granularity="tensor"), _LWPTV,
        P(80.1, 57.7, 67.1, (64.5, 68.1, 79.2, 93.8, 87.0, 91.9, 97.5, 59.1)),
        P(90.8, 66.0, 76.4, (79.0, 90.3, 90.8, 96.2, 93.4, 98.0, 99.0, 79.9)), note="adapts on test data"),
    *_both("Task Arithmetic w/ PwPTV", PWPTV + TA, "LwPTV, Tables 12 to 14",
        P(71.5, 54.2, 61.7, (59.8, 59.0, 70.6, 79.0, 81.9, 72.2, 97.2, 52.3),
          (80.4, 46.6, 27.8, 64.5, 29.0, 53.0, 63.9, 8.4, 79.0, 56.8, 54.1, 90.8, 50.1))),
    *_both("Task Arithmetic w/ LwPTV, without OR", OWN_MASKS + TA, "LwPTV, Tables 8 and 9",
        P(69.9, 61.8, None, (68.1, 65.7, 76.0, 77.4, 69.2, 61.2, 87.1, 54.4),
          (89.4, 62.6, 28.5, 66.1, 38.6, 64.8, 81.2, 7.2, 86.5, 59.6, 59.2, 96.9, 62.2))),
    *_both("Task Arithmetic w/ LwPTV, without saliency score", MEAN_ABS + TA, "LwPTV, Tables 8 and 9",
        P(51.9, 61.3, None, (64.3, 62.1, 65.0, 57.9, 35.9, 36.6, 47.6, 45.9),
          (90.3, 64.4, 17.9, 63.8, 39.4, 66.5, 82.7, 9.4, 86.9, 59.0, 57.0, 97.1, 62.7))),
    *_both("Task Arithmetic w/ absolute value", OWN_MEAN_ABS + TA, _LWPTV_OOD,
        P(48.9, 61.5, 54.5, (64.6, 61.0, 60.7, 47.1, 32.0, 32.8, 48.4, 44.4),
          (89.9, 64.6, 17.5, 63.7, 38.8, 66.6, 82.9, 9.4, 87.4, 60.2, 57.9, 97.2, 63.3))),
    *_both("Task Arithmetic w/ WiSE-FT", _step("wise_ft", alpha=0.5) + ANY_TA, _LWPTV_OOD,
        P(70.5, 55.4, 62.0, (60.6, 59.0, 70.2, 79.4, 78.2, 68.6, 96.1, 51.5),
          (81.6, 49.9, 29.6, 64.5, 30.3, 55.2, 65.9, 8.4, 81.1, 56.7, 54.2, 91.4, 52.0)),
        note=f"scaling {TUNED}", unstated=True),
    *_both("Model Stock", _step("model_stock"), _LWPTV_OOD,
        P(72.0, 58.7, 64.7, (60.7, 65.0, 75.0, 81.7, 80.0, 68.5, 95.2, 49.6),
          (86.6, 57.7, 30.9, 65.1, 32.1, 60.8, 74.9, 8.7, 84.2, 57.0, 54.4, 94.9, 56.5)),
        note="two runs of each task, then task arithmetic, " + TUNED, unstated=True),
    *_both("Task Arithmetic w/ LiNeS", _step("lines") + ANY_TA, _LWPTV_OOD,
        P(74.1, 58.0, 65.1, (63.9, 63.9, 75.1, 85.6, 79.4, 72.2, 96.2, 56.5),
          (84.4, 54.9, 30.3, 65.4, 33.6, 60.4, 73.7, 8.4, 83.6, 58.8, 51.4, 93.9, 55.6)), note=TUNED, unstated=True),
    *_both("Task Arithmetic w/ DARE", _step("dare") + TA, _LWPTV_OOD,
        P(49.1, 61.5, 54.6, (64.6, 58.7, 60.5, 47.4, 32.1, 33.6, 51.0, 44.8),
          (88.7, 64.7, 20.8, 64.1, 38.0, 65.9, 82.3, 8.8, 87.0, 61.7, 58.2, 96.9, 63.1)), note="best of three seeds"),
    *_both("Task Arithmetic w/ MWP", _step("magnitude") + TA, _LWPTV_OOD,
        P(71.7, 56.4, 63.1, (62.6, 61.6, 72.1, 78.1, 80.0, 69.9, 96.6, 53.0),
          (83.7, 52.1, 27.8, 64.4, 32.0, 56.1, 69.2, 8.2, 81.3, 57.5, 54.2, 92.9, 53.6))),
    *_both("Task Arithmetic w/ random mask", _step("random_mask") + TA, _LWPTV_OOD,
        P(49.1, 61.7, 54.7, (66.2, 59.9, 61.3, 48.6, 32.1, 32.3, 48.2, 44.5),
          (89.6, 64.9, 18.1, 63.9, 38.8, 66.5, 82.9, 9.4, 87.7, 60.2, 59.2, 97.0, 63.6)), note="best of three seeds"),
)  # fmt: skip

FROM_LOT: tuple[Figure, ...] = (
    *_both("Fisher Merging", _step("fisher"), _LOT,
        P(68.3, tasks=(68.6, 69.2, 70.7, 66.4, 72.9, 51.1, 87.9, 59.9)),
        P(82.2, tasks=(69.2, 88.6, 87.5, 93.5, 80.6, 74.8, 93.3, 70.0))),
    *_both("RegMean", _step("regmean"), _LOT,
        P(71.8, tasks=(65.3, 63.5, 75.6, 78.6, 78.1, 67.4, 93.7, 52.0)),
        P(83.7, tasks=(73.3, 81.8, 86.1, 97.0, 88.0, 84.2, 98.5, 60.8))),
    *_both("Ties-Merging", _step("ties"), _LOT,
        P(72.4, tasks=(59.8, 58.6, 70.7, 79.7, 86.2, 72.1, 98.3, 54.2)),
        P(86.0, tasks=(76.5, 85.0, 89.3, 95.7, 90.3, 83.3, 99.0, 68.8)), note="values not stated", unstated=True),
    *_both("TATR", _step("tatr") + ANY_TA, _LOT,
        P(72.8, tasks=(62.7, 59.3, 72.3, 82.3, 80.5, 72.6, 97.0, 55.4)),
        P(85.3, tasks=(74.6, 83.7, 87.6, 93.7, 88.6, 88.1, 99.0, 66.8))),
    *_both("Ties-Merging & TATR", _step("tatr") + _step("ties"), _LOT,
        P(73.3, tasks=(66.3, 65.9, 75.9, 79.4, 79.9, 68.1, 96.2, 54.8)),
        P(86.5, tasks=(76.3, 85.3, 88.8, 94.4, 90.8, 88.7, 99.2, 68.8))),
    *_both("Consensus Merging", _step("consensus"), _LOT,
        P(73.6, tasks=(65.7, 63.6, 76.5, 77.2, 81.7, 70.3, 97.0, 57.1)),
        P(85.2, tasks=(75.0, 84.3, 89.4, 95.6, 88.3, 82.4, 98.9, 68.0))),
    *_both("AWD Merging", _step("awd") + ANY_TA, _LOT,
        P(75.2, tasks=(63.5, 61.9, 72.6, 84.9, 85.1, 79.1, 98.1, 56.7)),
        P(87.5, tasks=(76.2, 85.4, 88.7, 96.1, 92.4, 92.3, 99.3, 69.4))),
    *_both("CAT Merging", _step("cat") + ANY_TA, _LOT,
        P(78.3, tasks=(68.1, 65.4, 80.5, 89.5, 85.5, 78.5, 98.6, 60.7)),
        P(89.6, tasks=(78.7, 88.5, 91.1, 96.3, 91.3, 95.7, 99.4, 75.7))),
    *_both("LOT Merging", _step("lot", scaling=1.2), _LOT,
        P(82.7, tasks=(67.7, 67.5, 85.7, 94.9, 93.4, 89.8, 98.7, 63.6)),
        P(90.5, tasks=(76.7, 88.6, 91.7, 98.7, 97.1, 95.7, 99.5, 76.4)),
        l14_chain=_step("lot", scaling=1.5), exemplars=64, note="mean of three draws"),
    *_both("LOT Merging, 32 exemplars", _step("lot", scaling=1.2), "LOT, Table 6",
        P(81.6, tasks=(67.4, 67.5, 83.3, 92.4, 93.2, 89.6, 98.6, 60.6)),
        P(90.0, tasks=(76.4, 88.4, 91.2, 98.3, 97.0, 95.5, 99.5, 74.1)),
        l14_chain=_step("lot", scaling=1.5), exemplars=32),
    *_both("LOT Merging, 16 exemplars", _step("lot", scaling=1.2), "LOT, Table 6",
        P(80.2, tasks=(66.4, 67.1, 82.6, 90.9, 91.7, 86.1, 98.5, 58.1)),
        P(89.0, tasks=(75.7, 87.6, 89.0, 98.2, 96.6, 94.0, 99.4, 71.3)),
        l14_chain=_step("lot", scaling=1.5), exemplars=16),
    *_both("LOT Merging, 8 exemplars", _step("lot", scaling=1.2), "LOT, Table 6",
        P(78.7, tasks=(65.4, 66.3, 79.4, 87.6, 92.8, 85.5, 98.2, 54.1)),
        P(88.2, tasks=(75.4, 87.8, 88.4, 95.9, 96.4, 93.9, 99.3, 68.3)),
        l14_chain=_step("lot", scaling=1.5), exemplars=8),
    *_both("LOT Merging, 4 exemplars", _step("lot", scaling=1.2), "LOT, Table 6",
        P(74.5, tasks=(64.2, 64.3, 69.1, 84.4, 88.6, 77.9, 96.5, 51.1)),
        P(86.7, tasks=(74.1, 87.5, 86.6, 92.6, 95.3, 92.1, 99.1, 66.5)),
        l14_chain=_step("lot", scaling=1.5), exemplars=4),
    *_both("EMR-Merging", _step("emr"), "LOT, Table 4",
        P(88.7, tasks=(75.2, 72.8, 93.5, 99.5, 96.9, 98.1, 99.6, 74.4)),
        P(93.7, tasks=(83.2, 90.7, 96.8, 99.7, 97.9, 99.1, 99.7, 82.7)), note="one model per task"),
)  # fmt: skip

FROM_CAT_PREPRINT: tuple[Figure, ...] = (
    *_both("CAT Merging, preprint", _step("cat") + ANY_TA, f"{PREPRINT}, Tables 1 and 2",
        P(76.1, tasks=(68.8, 66.5, 79.4, 85.9, 80.1, 72.9, 97.8, 57.9)),
        P(86.7, tasks=(75.2, 85.8, 90.6, 95.2, 85.4, 91.9, 99.1, 70.7))),
    *(figure for number, accuracy in ((1, 78.0), (2, 77.75), (4, 77.59), (8, 77.4), (16, 77.21), (32, 77.0))
        for figure in _both(f"CAT Merging, preprint, {number} exemplar{'s' if number > 1 else ''}",
            _step("cat") + ANY_TA, f"{PREPRINT}, Table 3", P(accuracy), exemplars=number, note="mean of five draws")),
)  # fmt: skip

FROM_DRM: tuple[Figure, ...] = (
    *_both("Simple Averaging", AVERAGE, _DRM,
        P(66.1, tasks=(65.0, 63.4, 72.5, 72.8, 64.1, 52.8, 87.5, 50.4)),
        P(79.6, tasks=(71.9, 81.6, 83.7, 91.1, 78.2, 70.6, 97.0, 62.7)), experts=CHAICHANA),
    *_both("Task Arithmetic", _step("task_arithmetic", scaling=0.4), _DRM,
        P(60.6, tasks=(36.5, 40.9, 54.3, 65.3, 80.6, 66.0, 98.1, 42.8)),
        P(83.4, tasks=(72.3, 79.2, 85.6, 90.5, 89.2, 86.6, 99.1, 64.3)), experts=CHAICHANA),
    *_both("Task Arithmetic, tuned", ANY_TA, _DRM,
        P(70.3, tasks=(63.5, 62.0, 73.4, 78.3, 74.4, 64.9, 94.0, 52.1)),
        P(84.6, tasks=(73.8, 82.1, 88.1, 93.1, 87.9, 86.8, 98.9, 65.8)), experts=CHAICHANA, note=TUNED, unstated=True),
    *_both("TIES Merging", TIES_MEAN, _DRM,
        P(72.5, tasks=(59.4, 58.8, 72.4, 78.6, 86.2, 72.1, 98.3, 54.3)),
        P(86.1, tasks=(76.1, 84.9, 91.2, 95.3, 90.3, 83.3, 99.0, 68.8)), experts=CHAICHANA),
    *_both("TIES Merging, tuned", _step("ties", aggregation="mean"), _DRM,
        P(74.3, tasks=(63.8, 61.8, 77.6, 75.1, 87.3, 73.1, 98.4, 57.1)),
        P(86.9, tasks=(76.7, 85.8, 91.9, 95.1, 91.5, 84.1, 99.2, 70.6)), experts=CHAICHANA, note=TUNED, unstated=True),
    *_both("Dare-TIES", DARE_TIES, _DRM,
        P(71.1, tasks=(56.4, 55.8, 69.6, 78.3, 86.3, 71.3, 98.4, 52.8)),
        P(85.9, tasks=(75.8, 84.3, 90.8, 95.0, 90.6, 83.6, 99.1, 68.2)), experts=CHAICHANA),
    *_both("Dare-TIES, tuned", _step("dare") + _step("ties", density=1.0, aggregation="mean"), _DRM,
        P(74.4, tasks=(65.6, 63.9, 78.3, 76.0, 85.1, 72.2, 97.8, 56.6)),
        P(86.8, tasks=(76.6, 85.7, 91.9, 95.2, 91.3, 84.5, 99.1, 70.2)), experts=CHAICHANA, note=TUNED, unstated=True),
    *_both("DRM-H", DRM_H, _DRM,
        P(77.5, tasks=(65.8, 64.7, 81.8, 89.3, 84.4, 75.9, 98.7, 59.7)),
        P(88.0, tasks=(76.3, 86.7, 93.4, 96.5, 90.7, 89.3, 99.2, 71.9)), experts=CHAICHANA),
    *_both("DRM-H, tuned", _step("drm", direction="horizontal"), _DRM,
        P(78.3, tasks=(67.1, 65.4, 83.1, 87.4, 87.8, 76.3, 99.0, 60.6)),
        P(89.3, tasks=(77.1, 87.8, 94.7, 96.6, 91.6, 91.9, 99.2, 75.2)), experts=CHAICHANA, note=TUNED, unstated=True),
    *_both("DRM-V", DRM_V, _DRM,
        P(72.8, tasks=(59.0, 56.1, 73.9, 80.0, 86.4, 74.5, 98.5, 53.6)),
        P(86.3, tasks=(75.3, 83.6, 90.6, 95.5, 91.3, 86.5, 99.2, 68.3)), experts=CHAICHANA),
    *_both("DRM-V, tuned", _step("drm", direction="vertical"), _DRM,
        P(74.6, tasks=(62.6, 62.8, 75.1, 83.2, 85.8, 74.5, 98.3, 55.0)),
        P(86.4, tasks=(75.1, 84.0, 90.4, 95.9, 91.9, 87.5, 99.2, 67.1)), experts=CHAICHANA, note=TUNED, unstated=True),
    *_both("DRM-H, without renormalization", _drm(renorm=False), "DRM, Table 3", P(73.5), experts=CHAICHANA),
    *_both("DRM-H, without pruning", _drm(density=1.0), "DRM, Table 7", P(74.9), experts=CHAICHANA),
    *_both("DRM-H, without sign election", _drm(elect=False), "DRM, Table 7", P(76.6), experts=CHAICHANA),
    *_both("DRM-H, without disjoint average", _drm(disjoint=False), "DRM, Table 7", P(62.9), experts=CHAICHANA),
    *_both("DRM-H, individual pruning", _drm(pruning="individual"), "DRM, Table 8", P(77.4), experts=CHAICHANA),
    *_both("DRM-V, individual pruning", _drm(direction="vertical", pruning="individual"), "DRM, Table 8", P(72.8),
        experts=CHAICHANA),
)  # fmt: skip

FROM_OTHERS: tuple[Figure, ...] = (
    *_both("TSV-M", _step("tsv_m"), "TSV-M", P(85.87), experts=TALL, normalized_as_printed=92.3,
        note="scaling chosen on validation data", unstated=True),
    *_both("TSV-M", _step("tsv_m"), "TSV-M", l14=P(92.98), experts=TALL, normalized_as_printed=97.0,
        note="scaling chosen on validation data", unstated=True),
    *_both("TSV-M", _step("tsv_m", scaling=1.0), "FusionBench", P(83.06), experts=HUGGING_FACE),
    *_both("Iso-C", _step("iso_c", scaling=1.5), "FusionBench", P(82.8), experts=HUGGING_FACE),
    *_both("Iso-CTS", _step("iso_cts", scaling=1.5), "FusionBench", P(82.7), experts=HUGGING_FACE),
    *_both("WUDI", _step("wudi", steps=300, scaling=1.0), "WUDI", P(85.2), P(92.6)),
    *_both("WUDI", _step("wudi", others="mean"), "FusionBench", P(84.5), experts=HUGGING_FACE),
    *_both("Simple averaging", AVERAGE, "FusionBench", P(66.5), P(80.0), experts=HUGGING_FACE),
    *_both("Task arithmetic", TA, "FusionBench", P(68.0), P(80.7), experts=HUGGING_FACE),
    *_both("TIES", TIES, "FusionBench", P(72.2), P(84.0), experts=HUGGING_FACE),
    *_both("Fisher merging", _step("fisher"), "FusionBench", P(70.6), P(80.3), experts=HUGGING_FACE),
    *_both("RegMean", _step("regmean", alpha=0.95), "FusionBench", P(82.4), P(90.4), experts=HUGGING_FACE),
)  # fmt: skip

# Models that are no merge, under the names by which ``merging.runs`` calls their kinds.
REFERENCES: Mapping[str, tuple[Figure, ...]] = {
    "pretrained": _both("Pretrained", (), _LWPTV,
        P(48.0, 61.5, 53.9, (62.3, 59.7, 60.7, 45.5, 31.4, 32.6, 48.5, 43.8)),
        P(64.5, 66.4, 65.4, (66.8, 77.7, 71.0, 59.9, 58.4, 50.5, 76.3, 55.3))),
    "individual": _both("Individual experts", (), _LWPTV, EXPERTS[ILHARCO, B32], EXPERTS[ILHARCO, L14]),
    "multitask": _both("Trained on all tasks", (), _LOT,
        P(88.9, tasks=(73.9, 74.4, 93.9, 98.2, 95.8, 98.9, 99.5, 77.9)),
        P(93.5, tasks=(80.8, 90.6, 96.3, 96.3, 97.6, 99.1, 99.6, 84.4)), note=ODD),
}  # fmt: skip

FIGURES: tuple[Figure, ...] = (*FROM_LWPTV, *FROM_LOT, *FROM_CAT_PREPRINT, *FROM_DRM, *FROM_OTHERS)


def with_method(role: str, key: str) -> tuple[Figure, ...]:
    """The figures in whose chain a method has that role."""
    places = slice(None, -1) if role == "edit" else slice(-1, None)
    return tuple(figure for figure in FIGURES if key in (step for step, _ in figure.chain[places]))

"""What LwPTV's paper takes apart and compares, all on task arithmetic: combinations, and how they belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from merging.recipes.papers.combinations import LWPTV_PAPER, TA, Combination

PWPTV = ("lwptv", {"prune_ratio": 0.7, "granularity": "parameter"})
OWN_MASKS = ("lwptv", {"prune_ratio": 0.7, "shared": False})
MEAN_ABS = ("lwptv", {"prune_ratio": 0.7, "score": "mean_abs", "shared": False})
MEAN_ABS_SHARED = ("lwptv", {"prune_ratio": 0.7, "score": "mean_abs"})

VARIANTS: tuple[Combination, ...] = (
    Combination(
        key="task_arithmetic_lwptv_own_masks",
        title="Task Arithmetic w/ LwPTV, without OR",
        edits=(OWN_MASKS,),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Tables 8 and 9",
        note="Every expert keeps only its own layers.",
    ),
    Combination(
        key="task_arithmetic_mean_abs_shared",
        title="Task Arithmetic w/ LwPTV, without saliency score",
        edits=(MEAN_ABS_SHARED,),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Tables 8 and 9",
        note="Layers ranked by the mean size of the task vector, one mask for all experts.",
    ),
    Combination(
        key="task_arithmetic_mean_abs",
        title="Task Arithmetic w/ absolute value",
        edits=(MEAN_ABS,),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Table 3",
        note="Layers ranked by the mean size of the task vector, each expert with its own mask.",
    ),
    Combination(
        key="task_arithmetic_pwptv",
        title="Task Arithmetic w/ PwPTV",
        edits=(PWPTV,),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Table 12",
        note="Masks scalars in place of layers.",
    ),
    Combination(
        key="magnitude",
        title="Task Arithmetic w/ magnitude pruning",
        edits=(("magnitude", {"prune_ratio": 0.7}),),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Table 3",
        note="Zeroes the smallest scalars of every task vector.",
    ),
    Combination(
        key="random_mask",
        title="Task Arithmetic w/ random mask",
        edits=(("random_mask", {"prune_ratio": 0.7}),),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Table 3",
        note="Zeroes scalars at random: a weaker task arithmetic in expectation, so not the paper's figure.",
    ),
    Combination(
        key="task_arithmetic_wise_ft",
        title="WiSE-FT",
        edits=(("wise_ft", {"alpha": 0.5}),),
        merge="task_arithmetic",
        params={"scaling": 0.6},
        source=f"Wortsman et al., CVPR 2022; {LWPTV_PAPER}, Table 10",
        note="Experts half way back to the pretrained model; exactly task arithmetic with half the scaling.",
    ),
    Combination(
        key="task_arithmetic_lines",
        title="LiNeS",
        edits=(("lines", {"slope": 0.5}),),
        merge="task_arithmetic",
        params={"scaling": 1.0},
        source="Wang et al. (LiNeS), ICLR 2025",
        note="The first block at 1/K, the last at 1/K + 0.5; the authors choose the slope on validation data.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class AblationFamily:
    """A method, what it is put in front of, and what it is compared with: keys of combinations.

    ``base`` is the merge alone, ``whole`` the merge with the method, ``groups`` the others by what they are.
    """

    title: str
    base: str
    whole: str
    groups: Mapping[str, tuple[str, ...]]
    note: str

    @property
    def keys(self) -> tuple[str, ...]:
        """All of them, the base first."""
        return (self.base, self.whole, *(key for keys in self.groups.values() for key in keys))

    def group(self, key: str) -> str:
        """What one of them is."""
        named = {self.base: "Without it", self.whole: "The whole method"}
        return named.get(key) or next(name for name, keys in self.groups.items() if key in keys)


LWPTV_FAMILY = AblationFamily(
    title="LwPTV on task arithmetic",
    base="task_arithmetic",
    whole="task_arithmetic_lwptv",
    groups={
        "Part changed": (
            "task_arithmetic_lwptv_own_masks",
            "task_arithmetic_mean_abs_shared",
            "task_arithmetic_mean_abs",
            "task_arithmetic_pwptv",
        ),
        "Other pruning": ("task_arithmetic_dare", "magnitude", "random_mask"),
        "Robust fine-tuning": ("task_arithmetic_wise_ft", "task_arithmetic_lines", "model_stock"),
    },
    note="The paper's Model Stock combines two runs of each task and adds the results up by task arithmetic; ours has "
    "one run of each task and combines across tasks. The paper tunes the scaling behind WiSE-FT and LiNeS on "
    "validation data, so no run of ours stands in their rows; ours of WiSE-FT halves the task vectors and doubles the "
    "scaling, which is task arithmetic again. The paper also prints times on its own machine: task arithmetic 8.3 s, "
    "with LwPTV 9.0 s, with PwPTV 135.4 s (Table 12).",
)

"""The papers' named combinations, with the papers' parameters, as chains of registered methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from merging.errors import RecipeError, did_you_mean
from merging.recipe import Recipe

ILHARCO, TIES_PAPER, ADAMERGING = "Ilharco et al., ICLR 2023", "Yadav et al., NeurIPS 2023", "Yang et al., ICLR 2024"
LWPTV_PAPER = "Zhang et al. (LwPTV), NeurIPS 2025"

Chain = tuple[tuple[str, Mapping[str, Any]], ...]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A chain that a paper reports under a name. ``source`` says where, ``note`` what to know about it."""

    key: str
    title: str
    merge: str
    params: Mapping[str, Any] = field(default_factory=dict)
    edits: Chain = ()
    source: str = ""
    note: str = ""

    def recipe(self, pretrained: str, experts: Mapping[str, str], count_dead_params: bool = True) -> Recipe:
        """The preset on these checkpoints, as published: with the unused text tensors that they may carry counted."""
        return Recipe.build(
            self.merge,
            self.params,
            self.edits,
            pretrained,
            experts,
            self.title,
            count_dead_params=count_dead_params,
        )


TA = {"scaling": 0.3}
TIES_SUM = {"density": 0.2, "aggregation": "sum", "scaling": 0.3}
LWPTV = ("lwptv", {"prune_ratio": 0.7})
PWPTV = ("lwptv", {"prune_ratio": 0.7, "granularity": "parameter"})
OWN_MASKS = ("lwptv", {"prune_ratio": 0.7, "shared": False})
MEAN_ABS = ("lwptv", {"prune_ratio": 0.7, "score": "mean_abs", "shared": False})
MEAN_ABS_SHARED = ("lwptv", {"prune_ratio": 0.7, "score": "mean_abs"})

PRESETS: tuple[Preset, ...] = (
    Preset(
        key="weight_averaging",
        title="Weight Averaging",
        merge="weight_averaging",
        source=f"{LWPTV_PAPER}, Table 2",
        note="The plain mean of the experts' weights.",
    ),
    Preset(
        key="task_arithmetic",
        title="Task Arithmetic",
        merge="task_arithmetic",
        params=TA,
        source=f"{ILHARCO}; coefficient of {ADAMERGING} and {LWPTV_PAPER}",
        note="Scaling 0.3 is the value for eight tasks.",
    ),
    Preset(
        key="ties",
        title="Ties",
        merge="ties",
        params=TIES_SUM,
        source=f"{ADAMERGING}; {LWPTV_PAPER}, Table 2",
        note="Sums the agreeing scalars; scaling 0.3 for ViT-B/32, 0.4 for ViT-L/14.",
    ),
    Preset(
        key="ties_mean",
        title="TIES-Merging",
        merge="ties",
        params={"density": 0.2, "aggregation": "mean", "scaling": 1.0},
        source=TIES_PAPER,
        note="The disjoint mean with scaling 1, as in the authors' notebook.",
    ),
    Preset(
        key="task_arithmetic_lwptv",
        title="Task Arithmetic w/ LwPTV",
        edits=(LWPTV,),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Table 2",
        note="Prune ratio 0.7; good values lie between 0.6 and 0.8.",
    ),
    Preset(
        key="ties_lwptv",
        title="Ties w/ LwPTV",
        edits=(LWPTV,),
        merge="ties",
        params=TIES_SUM,
        source=f"{LWPTV_PAPER}, Table 2",
    ),
    Preset(
        key="task_arithmetic_pwptv",
        title="Task Arithmetic w/ PwPTV",
        edits=(PWPTV,),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Table 12",
        note="Masks scalars in place of layers.",
    ),
    Preset(
        key="task_arithmetic_lwptv_own_masks",
        title="Task Arithmetic w/ LwPTV, without OR",
        edits=(OWN_MASKS,),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Tables 8 and 9",
        note="Every expert keeps only its own layers.",
    ),
    Preset(
        key="task_arithmetic_mean_abs",
        title="Task Arithmetic w/ absolute value",
        edits=(MEAN_ABS,),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Table 3",
        note="Layers ranked by the mean size of the task vector, each expert with its own mask.",
    ),
    Preset(
        key="task_arithmetic_mean_abs_shared",
        title="Task Arithmetic w/ LwPTV, without saliency score",
        edits=(MEAN_ABS_SHARED,),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Tables 8 and 9",
        note="Layers ranked by the mean size of the task vector, one mask for all experts.",
    ),
    Preset(
        key="lot",
        title="LOT Merging",
        merge="lot",
        params={"scaling": 1.2},
        source="Sun et al. (LOT), NeurIPS 2025, Table 1",
        note="64 exemplars per task; scaling 1.2 for ViT-B/32, 1.5 for ViT-L/14.",
    ),
)


def preset(key: str) -> Preset:
    """The preset of that key; raises RecipeError with the nearest one."""
    for found in PRESETS:
        if found.key == key:
            return found
    keys = [found.key for found in PRESETS]
    raise RecipeError(f"There is no preset {key!r}.{did_you_mean(key, keys)} Known: {', '.join(keys)}.")

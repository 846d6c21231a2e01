"""The papers' named combinations, with the papers' parameters for ViT-B/32 and where they differ for ViT-L/14: data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ILHARCO, TIES_PAPER, ADAMERGING = "Ilharco et al., ICLR 2023", "Yadav et al., NeurIPS 2023", "Yang et al., ICLR 2024"
LWPTV_PAPER, DRM_PAPER, LOT_PAPER = "Zhang et al. (LwPTV), NeurIPS 2025", "Chaichana et al. (DRM)", "Sun et al. (LOT)"
CONSENSUS_PAPER, DARE_PAPER = "Wang et al. (TALL masks), ICML 2024", "Yu et al., ICML 2024"

Chain = tuple[tuple[str, Mapping[str, Any]], ...]

TA = {"scaling": 0.3}
TIES_SUM = {"density": 0.2, "aggregation": "sum", "scaling": 0.3}
DISJOINT_MEAN = {"density": 1.0, "aggregation": "mean", "scaling": 1.0}
PCB = {"density": 0.05, "scaling": 1.2}
DRM = {"density": 0.2, "scaling": 1.0}
LWPTV = ("lwptv", {"prune_ratio": 0.7})


@dataclass(frozen=True, kw_only=True)
class Combination:
    """A chain that a paper reports under a name. ``source`` says where, ``note`` what to know about it.

    ``large`` holds the merge's parameters that the paper sets otherwise for ViT-L/14.
    """

    key: str
    title: str
    merge: str
    params: Mapping[str, Any] = field(default_factory=dict)
    large: Mapping[str, Any] = field(default_factory=dict)
    edits: Chain = ()
    exemplars: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    note: str = ""


COMBINATIONS: tuple[Combination, ...] = (
    Combination(
        key="weight_averaging",
        title="Weight Averaging",
        merge="weight_averaging",
        source=f"{LWPTV_PAPER}, Table 2",
        note="The plain mean of the experts' weights.",
    ),
    Combination(
        key="task_arithmetic",
        title="Task Arithmetic",
        merge="task_arithmetic",
        params=TA,
        source=f"{ILHARCO}; coefficient of {ADAMERGING} and {LWPTV_PAPER}",
        note="Scaling 0.3 is the value for eight tasks.",
    ),
    Combination(
        key="ties",
        title="Ties",
        merge="ties",
        params=TIES_SUM,
        large={"scaling": 0.4},
        source=f"{ADAMERGING}; {LWPTV_PAPER}, Table 2",
        note="Sums the agreeing scalars; scaling 0.3 for ViT-B/32, 0.4 for ViT-L/14.",
    ),
    Combination(
        key="ties_mean",
        title="TIES-Merging",
        merge="ties",
        params={"density": 0.2, "aggregation": "mean", "scaling": 1.0},
        source=TIES_PAPER,
        note="The disjoint mean with scaling 1, as in the authors' notebook.",
    ),
    Combination(
        key="consensus",
        title="Consensus Task Arithmetic",
        merge="consensus",
        params={"mask_scale": 0.4, "min_tasks": 2, "scaling": 0.3},
        source=CONSENSUS_PAPER,
        note="The authors choose both scales on validation data; these are the middle of their grids.",
    ),
    Combination(
        key="consensus_ties",
        title="Consensus TIES",
        merge="consensus",
        params={"mask_scale": 0.4, "min_tasks": 2, "scaling": 0.3, "base": "ties"},
        source=CONSENSUS_PAPER,
        note="The masks compare the untrimmed task vectors with the TIES vector.",
    ),
    Combination(
        key="pcb",
        title="PCB-Merging",
        merge="pcb",
        params=PCB,
        source=f"Du et al., NeurIPS 2024; {LWPTV_PAPER}, Table 2",
        note="Density 0.05 and scaling 1.2 for both model sizes.",
    ),
    Combination(
        key="model_stock",
        title="Model Stock, across tasks",
        merge="model_stock",
        source="Jang et al., ECCV 2024",
        note="Made for several runs of one task; across tasks it acts as a layer-wise weaker average.",
    ),
    Combination(
        key="emr",
        title="EMR-Merging",
        merge="emr",
        source="Huang et al., NeurIPS 2024",
        note="One model per task: not comparable with a single merged model.",
    ),
    Combination(
        key="drm_h",
        title="DRM-H",
        merge="drm",
        params={**DRM, "direction": "horizontal"},
        source=f"{DRM_PAPER}, Table 1",
        note="Density 0.2 and scaling 1, the setting without tuning.",
    ),
    Combination(
        key="drm_v",
        title="DRM-V",
        merge="drm",
        params={**DRM, "direction": "vertical"},
        source=f"{DRM_PAPER}, Table 1",
        note="Density 0.2 and scaling 1, the setting without tuning.",
    ),
    Combination(
        key="drm_h_without_renorm",
        title="DRM-H without renormalization",
        merge="drm",
        params={**DRM, "direction": "horizontal", "renorm": False},
        source=f"{DRM_PAPER}, Table 3",
        note="The ablation: entries are pruned by their size in the shared basis.",
    ),
    Combination(
        key="tsv_m",
        title="TSV-Merge",
        merge="tsv_m",
        params={"scaling": 1.0},
        source="Gargiulo et al., CVPR 2025",
        note="The authors choose the scaling on validation data between 0.1 and 3.",
    ),
    Combination(
        key="iso_c",
        title="Iso-C",
        merge="iso_c",
        params={"scaling": 1.5},
        source="Marczak et al., ICML 2025",
        note="The authors choose the scaling on validation data; 1.5 is FusionBench's.",
    ),
    Combination(
        key="iso_cts",
        title="Iso-CTS",
        merge="iso_cts",
        params={"common_fraction": 0.8, "scaling": 1.5},
        source="Marczak et al., ICML 2025",
        note="The authors choose the scaling on validation data; 1.5 is FusionBench's.",
    ),
    Combination(
        key="wudi",
        title="WUDI-Merging",
        merge="wudi",
        params={"steps": 300, "scaling": 1.0},
        source="Cheng et al., ICML 2025",
        note="300 steps on the linear weights alone; everything else stays pretrained.",
    ),
    Combination(
        key="task_arithmetic_dare",
        title="DARE",
        edits=(("dare", {"drop_rate": 0.5}),),
        merge="task_arithmetic",
        params=TA,
        source=DARE_PAPER,
        note="Half of the scalars dropped, the others doubled: task arithmetic in expectation.",
    ),
    Combination(
        key="dare_ties",
        title="DARE-TIES",
        edits=(("dare", {"drop_rate": 0.8}),),
        merge="ties",
        params=DISJOINT_MEAN,
        source=f"{DRM_PAPER}, Table 1",
        note="DARE takes the place of trimming; then the sign election and the disjoint mean with scaling 1.",
    ),
    Combination(
        key="task_arithmetic_awd",
        title="AWD",
        edits=(("awd", {"penalty": 0.1, "lr": 0.01, "steps": 300}),),
        merge="task_arithmetic",
        params=TA,
        source="Xiong et al. (AWD), 2024",
        note="With task arithmetic it comes to one weight per task.",
    ),
    Combination(
        key="task_arithmetic_lwptv",
        title="Task Arithmetic w/ LwPTV",
        edits=(LWPTV,),
        merge="task_arithmetic",
        params=TA,
        source=f"{LWPTV_PAPER}, Table 2",
        note="Prune ratio 0.7; good values lie between 0.6 and 0.8.",
    ),
    Combination(
        key="ties_lwptv",
        title="Ties w/ LwPTV",
        edits=(LWPTV,),
        merge="ties",
        params=TIES_SUM,
        large={"scaling": 0.4},
        source=f"{LWPTV_PAPER}, Table 2",
    ),
    Combination(
        key="pcb_lwptv",
        title="PCB w/ LwPTV",
        edits=(LWPTV,),
        merge="pcb",
        params=PCB,
        source=f"{LWPTV_PAPER}, Table 2",
    ),
    Combination(
        key="lot",
        title="LOT Merging",
        merge="lot",
        params={"scaling": 1.2},
        large={"scaling": 1.5},
        source=f"{LOT_PAPER}, NeurIPS 2025, Table 1",
        note="64 exemplars per task; scaling 1.2 for ViT-B/32, 1.5 for ViT-L/14.",
    ),
    Combination(
        key="regmean",
        title="RegMean",
        merge="regmean",
        params={"alpha": 0.95},
        source="Jin et al., ICLR 2023; alpha of FusionBench",
        note="The literature shows it 256 exemplars per task and more; here 64, as LOT.",
    ),
    Combination(
        key="fisher",
        title="Fisher Merging",
        merge="fisher",
        source="Matena and Raffel, NeurIPS 2022",
        note="The literature shows it 256 exemplars per task; here 64. Labels are drawn from the experts' predictions.",
    ),
    Combination(
        key="cat",
        title="CAT Merging",
        edits=(("cat", {}),),
        merge="task_arithmetic",
        params={"scaling": 0.4},
        exemplars={"per_task": 2},
        source="Sun et al. (CAT), ICML 2025",
        note="Two exemplars per task, as the authors use.",
    ),
    Combination(
        key="tatr",
        title="TATR",
        edits=(("tatr", {"keep": 0.99}),),
        merge="task_arithmetic",
        params=TA,
        source=f"{LOT_PAPER}, NeurIPS 2025, Table 1",
        note="Sees labels. The authors show it 128 exemplars per task; here 64.",
    ),
    Combination(
        key="ties_tatr",
        title="TIES & TATR",
        edits=(("tatr", {"keep": 0.99}),),
        merge="ties",
        params=TIES_SUM,
        source=f"{LOT_PAPER}, NeurIPS 2025, Table 1",
        note="The trust region first, then TIES on what it leaves; the order is not published.",
    ),
    Combination(
        key="ties_cat",
        title="TIES w/ CAT",
        edits=(("cat", {}),),
        merge="ties",
        params=TIES_SUM,
        exemplars={"per_task": 2},
        source="ours: no paper reports it",
        note="Conflicting directions out first, then trimming and election.",
    ),
)

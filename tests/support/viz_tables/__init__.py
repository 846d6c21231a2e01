"""Small generated tables of the shape that the charts take, by the key of the chart that draws them."""

from viz_tables.base import names, tensors, wilson
from viz_tables.compare import (
    compare_agreement,
    compare_cells,
    compare_distance,
    compare_scores,
    compare_spectrum,
    compare_tensor,
)
from viz_tables.conflicts import (
    election_layers,
    joint_dropped,
    joint_energy,
    joint_spectrum,
    joint_steps,
    pair_depth,
    pair_matrix,
    rank_truncation,
    sign_histogram,
    sign_layers,
    task_counts,
)
from viz_tables.drift import (
    drift_accuracy,
    drift_altered,
    drift_case_objective,
    drift_case_weights,
    drift_depth,
    drift_exemplars,
    drift_layers,
    drift_objective,
    drift_removed,
    drift_tensor,
)
from viz_tables.features import (
    feature_components,
    feature_distance,
    feature_layers,
    feature_map,
    feature_separability,
)
from viz_tables.masks import kept_share, manual_canvas, saliency_matrix, saliency_tensor, task_vector_norms
from viz_tables.previews import preview_change
from viz_tables.put_back import drift_and_put_back, first_order_map, revert_map
from viz_tables.runs import lineage
from viz_tables.scores import id_ood_scatter, plugin_arrows, storage, task_accuracy
from viz_tables.sweeps import sweep_contour, sweep_lines, sweep_tasks

__all__ = [
    "compare_agreement",
    "compare_cells",
    "compare_distance",
    "compare_scores",
    "compare_spectrum",
    "compare_tensor",
    "drift_accuracy",
    "drift_altered",
    "drift_and_put_back",
    "drift_case_objective",
    "drift_case_weights",
    "drift_depth",
    "drift_exemplars",
    "drift_layers",
    "drift_objective",
    "drift_removed",
    "drift_tensor",
    "election_layers",
    "feature_components",
    "feature_distance",
    "feature_layers",
    "feature_map",
    "feature_separability",
    "first_order_map",
    "id_ood_scatter",
    "joint_dropped",
    "joint_energy",
    "joint_spectrum",
    "joint_steps",
    "kept_share",
    "lineage",
    "manual_canvas",
    "names",
    "pair_depth",
    "pair_matrix",
    "plugin_arrows",
    "preview_change",
    "rank_truncation",
    "revert_map",
    "saliency_matrix",
    "saliency_tensor",
    "sign_histogram",
    "sign_layers",
    "storage",
    "sweep_contour",
    "sweep_lines",
    "sweep_tasks",
    "task_accuracy",
    "task_counts",
    "task_vector_norms",
    "tensors",
    "wilson",
]

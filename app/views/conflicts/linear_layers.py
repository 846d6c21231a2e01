"""Linear layers of a run for the views of the Conflicts page: their picker, matrices and joint spaces.

Joint spaces are cached for all sessions, because only decompositions take long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import page_data
from app.reading.measurements import TENSOR_COLUMNS
from app.session import address
from app.widgets import selection_pickers
from merging.models.families import LINEAR_MAPS
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from merging.study.analysis.drm_joint_space import JointSpace, TaskMatrices, Tick


def list_linear_layers(run: Run) -> pd.DataFrame:
    """The linear layers of a run's experts in forward order, with section, role and part."""
    from viz.chart import sort_forward

    rows = page_data.run_table(run.id, "tensors")
    return sort_forward(rows[rows["role"].isin(LINEAR_MAPS)])[[*TENSOR_COLUMNS, "numel"]].reset_index(drop=True)


def pick_layer(run: Run, default: str | None = None) -> str | None:
    """Draw the picker of a linear layer; returns its name.

    ``default`` is preselected unless the link or the session names a layer.
    """
    names = list(list_linear_layers(run)["tensor"])
    return selection_pickers.pick_selected(
        address.TENSOR, names, "Layer", first=default, width=420, plural_noun="linear layers"
    )


def find_middle_layer(run: Run) -> str:
    """The first linear layer of the middle block, the default of views that need a layer."""
    rows = list_linear_layers(run)
    blocks = list(dict.fromkeys(section for section in rows["section"] if "block " in section))
    section = blocks[len(blocks) // 2] if blocks else rows["section"].iloc[0]
    return str(rows[rows["section"] == section]["tensor"].iloc[0])


@st.cache_resource(max_entries=2, show_spinner=False)
def _open_task_matrices(run_id: str) -> TaskMatrices:
    from merging.study.analysis.drm_joint_space import TaskMatrices

    return TaskMatrices.from_run(page_data.store().get_run(run_id))


@st.cache_resource(max_entries=2, show_spinner="Reading the layer …")
def read_task_matrices(run_id: str, layer: str) -> torch.Tensor:
    """Task vectors of a linear layer, (experts, d_out, d_in), in the order of the run; shared, so never changed.

    Raises:
        CheckpointError: a checkpoint of the run is missing or has changed.
    """
    return _open_task_matrices(run_id).layer(layer)


@dataclass
class Decomposition:
    """A holder of a layer's joint space: None until it is computed."""

    space: JointSpace | None = None


# The cache stores the holder, not the space: cached functions must not draw, and computing a space draws progress.
@st.cache_resource(max_entries=4, show_spinner=False)
def find_cached_decomposition(run_id: str, layer: str, vertical: bool) -> Decomposition:
    """The decomposition of a layer, cached for all sessions; only the last few layers stay cached."""
    return Decomposition()


def estimate_seconds(run: Run, layer: str, vertical: bool) -> float:
    """The estimated seconds to compute the joint space of a layer; 0 if it is cached.

    Raises:
        CheckpointError: as in ``read_task_matrices``.
    """
    from merging.study.analysis.drm_joint_space import estimated_seconds

    if find_cached_decomposition(run.id, layer, vertical).space is not None:
        return 0.0
    count, height, width = read_task_matrices(run.id, layer).shape
    return estimated_seconds(count, (height, width), vertical)


def decompose_layer(run: Run, layer: str, vertical: bool, tick: Tick = lambda share: None) -> JointSpace:
    """The joint space of a layer, with every direction that is not null; ``tick`` gets the finished share, 0 to 1.

    Raises:
        CheckpointError: as in ``read_task_matrices``. MergingError: the numbers are too large.
    """
    from merging.study.analysis.drm_joint_space import compute_joint_space

    cached = find_cached_decomposition(run.id, layer, vertical)
    if cached.space is None:
        cached.space = compute_joint_space(run.experts, read_task_matrices(run.id, layer), vertical, tick)
    return cached.space

"""The charts of the pages on one run as cells, for the charts of two runs on the Compare page.

Every function returns the cells of one chart; those that need no ``measurement`` ignore it. A cell has row, title,
tensor, order, section, role, part and value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from app.page_text import look_up_names
from app.reading import measurements, page_data
from app.views.conflicts import expert_pairs as conflict_pairs
from app.views.conflicts import sign_agreement as conflict_signs
from merging.base.errors import CheckpointError
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.edit_pairs import find_same_saliency
from merging.study.runs.run import SALIENCY, Run
from viz.figure_text import clean_text

if TYPE_CHECKING:
    import pandas as pd

CELL_COLUMNS = ["row", "title", "tensor", "order", "section", "role", "part", "value"]


class ChartCells(NamedTuple):
    """One run's cells, or the reason why it has none."""

    table: pd.DataFrame | None
    reason: str = ""


def _merged_cells(run: Run, value: Callable[[pd.DataFrame], pd.Series[float]]) -> ChartCells:
    """The cells of one row, the merged model."""
    table = page_data.run_table(run.id, "tensors")
    return ChartCells(table.assign(row="merged", title="Merged", value=value(table))[CELL_COLUMNS])


def kept_cells(run: Run, measurement: StoredMeasurement | None) -> ChartCells:
    """The share of each tensor's scalars that differ from the pretrained model's."""
    return _merged_cells(run, lambda table: table["kept_numel"] / table["numel"])


def changed_cells(run: Run, measurement: StoredMeasurement | None) -> ChartCells:
    """The norm of each tensor's change over its pretrained norm."""
    return _merged_cells(
        run, lambda table: table["change_norm"] / table["pretrained_norm"].where(table["pretrained_norm"] > 0)
    )


def _expert_cells(run: Run, table: pd.DataFrame, value: str) -> ChartCells:
    task_titles = measurements.titles_by_task()
    titles = look_up_names(table["expert"], task_titles)
    position = table["expert"].map({name: index for index, name in enumerate(run.experts)})
    cells = table.assign(row=table["expert"], title=titles, value=table[value].astype(float), _position=position)
    return ChartCells(cells.sort_values("_position", kind="stable")[CELL_COLUMNS])


def mask_cells(run: Run, measurement: StoredMeasurement | None) -> ChartCells:
    """The masks that the run applied to whole tensors."""
    stored = page_data.stored_runs()
    if SALIENCY not in run.tables and find_same_saliency(run, stored) is None:
        return ChartCells(
            None, "has no masks of tensors. Chains with LwPTV have them; the chart of kept shares needs none"
        )
    return _expert_cells(run, page_data.saliency(run, stored)[0], "final")


def saliency_cells(run: Run, measurement: StoredMeasurement | None) -> ChartCells:
    """Saliency of the task vectors by the run's own score, else by LwPTV's."""
    try:
        return _expert_cells(run, page_data.saliency(run, page_data.stored_runs())[0], "saliency")
    except CheckpointError as error:
        return ChartCells(None, f"has task vectors that cannot be measured: {clean_text(error, 300)}")


def removed_cells(run: Run, measurement: StoredMeasurement | None) -> ChartCells:
    """The share of every task vector's squared norm that CAT removed."""
    if measurements.CONFLICTS not in run.tables:
        return ChartCells(None, "did not record the share that CAT removes. Chains with the edit CAT do")
    return _expert_cells(run, page_data.run_table(run.id, measurements.CONFLICTS), "removed")


def drift_cells(run: Run, measurement: StoredMeasurement | None, kind: str = "merge") -> ChartCells:
    """Drift of the class token after every part of the network, task by task; parts are columns instead of tensors."""
    assert measurement is not None  # drawn only if it is measured
    table = measurements.drift_by_depth([(run, measurement)], "class")
    table = table[table["kind"] == kind]
    columns = {"tensor": table["section"], "section": table["section"], "order": table["position"]}
    cells = table.assign(row=table["task"], value=table["cosine"], role="section", part="class token", **columns)
    return ChartCells(cells[CELL_COLUMNS])


def pretrained_drift_cells(run: Run, measurement: StoredMeasurement | None) -> ChartCells:
    """Drift by depth of the pretrained model, which was measured together with the run."""
    return drift_cells(run, measurement, measurements.PRETRAINED)


def isolated_cells(run: Run, measurement: StoredMeasurement | None) -> ChartCells:
    """Layer-isolated drift, task by task."""
    assert measurement is not None  # drawn only if it is measured
    table = measurements.layer_drift_table(run, measurement)
    return ChartCells(table.assign(row=table["task"], value=table["relative"])[CELL_COLUMNS])


def objective_cells(run: Run, measurement: StoredMeasurement | None) -> ChartCells:
    """LOT's objective after the merge as a share of its value before."""
    assert measurement is not None  # drawn only if it is measured
    table = measurements.lot_objective_table(run, measurement)
    share = table["merged"] / table["pretrained"].where(table["pretrained"] > 0)
    return ChartCells(table.assign(row="merged", title="Merged", value=share)[CELL_COLUMNS])


def sign_cells(run: Run, measurement: StoredMeasurement | None) -> ChartCells:
    """The excess of sign agreement over that of random signs, in every space."""
    assert measurement is not None  # drawn only if it is measured
    table = conflict_signs.read_agreement(measurement, conflict_signs.DEFAULT_DENSITY)
    return ChartCells(table.assign(row=table["space"], value=table["excess"])[CELL_COLUMNS])


def election_cells(run: Run, measurement: StoredMeasurement | None) -> ChartCells:
    """The share of each expert's entries that survives the election of signs."""
    assert measurement is not None  # drawn only if it is measured
    table = conflict_signs.read_elections(measurement, conflict_signs.DEFAULT_DENSITY)
    return _expert_cells(run, table, "survived")


def pair_cells(run: Run, measurement: StoredMeasurement | None) -> ChartCells:
    """Cosine of the task vectors of every two experts; the order of the two does not matter."""
    assert measurement is not None  # drawn only if it is measured
    table = conflict_pairs.read_pairs_by_tensor(str(measurement.path), measurement, "cosine", 1.0)
    expert_pairs = [sorted(pair) for pair in zip(table["first"], table["second"], strict=True)]
    titles = [" · ".join(pair) for pair in expert_pairs]  # as on the page of one run
    return ChartCells(table.assign(row=["\n".join(pair) for pair in expert_pairs], title=titles)[CELL_COLUMNS])

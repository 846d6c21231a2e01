"""The charts of Explore as cells of one run, for the charts of two runs on the Compare page.

A cell has row, title, tensor, order, section, role, part and value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from app.reading import data, measurements
from app.text import look_up
from app.views.conflicts import pairs as conflict_pairs
from app.views.conflicts import signs as conflict_signs
from merging.base.errors import CheckpointError
from merging.study.analysis.stored import Measured
from merging.study.runs.edit_pairs import same_saliency
from merging.study.runs.run import SALIENCY, Run
from viz.text import clean_text

if TYPE_CHECKING:
    import pandas as pd

CELL = ["row", "title", "tensor", "order", "section", "role", "part", "value"]


class Rows(NamedTuple):
    """One run's cells, or the reason why there are none."""

    table: pd.DataFrame | None
    why: str = ""


def _whole(run: Run, value: Callable[[pd.DataFrame], pd.Series[float]]) -> Rows:
    """One row: the merged model."""
    table = data.table(run.id, "tensors")
    return Rows(table.assign(row="merged", title="Merged", value=value(table))[CELL])


def kept(run: Run, measurement: Measured | None) -> Rows:
    """Share of each tensor's scalars that differ from the pretrained model's."""
    return _whole(run, lambda table: table["kept_numel"] / table["numel"])


def changed(run: Run, measurement: Measured | None) -> Rows:
    """How much of its norm each tensor changed by."""
    return _whole(
        run, lambda table: table["change_norm"] / table["pretrained_norm"].where(table["pretrained_norm"] > 0)
    )


def _by_expert(run: Run, table: pd.DataFrame, value: str) -> Rows:
    task_titles = measurements.titles()
    titles = look_up(table["expert"], task_titles)
    place = table["expert"].map({name: at for at, name in enumerate(run.experts)})
    cells = table.assign(row=table["expert"], title=titles, value=table[value].astype(float), _place=place)
    return Rows(cells.sort_values("_place", kind="stable")[CELL])


def masks(run: Run, measurement: Measured | None) -> Rows:
    """The masks that were applied to whole tensors."""
    stored = data.stored()
    if SALIENCY not in run.tables and same_saliency(run, stored) is None:
        return Rows(None, "has no masks of tensors. Chains with LwPTV have them; the chart of kept shares needs none")
    return _by_expert(run, data.saliency(run, stored)[0], "final")


def saliency(run: Run, measurement: Measured | None) -> Rows:
    """Saliency of the task vectors as the run scored them, else as LwPTV would."""
    try:
        return _by_expert(run, data.saliency(run, data.stored())[0], "saliency")
    except CheckpointError as error:
        return Rows(None, f"has task vectors that cannot be measured: {clean_text(error, 300)}")


def removed(run: Run, measurement: Measured | None) -> Rows:
    """The share of every task vector's squared norm that CAT removed."""
    if measurements.CONFLICTS not in run.tables:
        return Rows(None, "did not record what CAT removes. Chains with the edit CAT do")
    return _by_expert(run, data.table(run.id, measurements.CONFLICTS), "removed")


def by_depth(run: Run, measurement: Measured | None, kind: str = "merge") -> Rows:
    """Drift of the class token at every place, task by task; places take the place of tensors."""
    assert measurement is not None  # drawn only if it is measured
    table = measurements.by_depth([(run, measurement)], "class")
    table = table[table["kind"] == kind]
    place = {"tensor": table["place"], "section": table["place"], "order": table["position"]}
    cells = table.assign(row=table["task"], value=table["cosine"], role="place", part="class token", **place)
    return Rows(cells[CELL])


def pretrained_by_depth(run: Run, measurement: Measured | None) -> Rows:
    """The same for the pretrained model, which was measured together with the run."""
    return by_depth(run, measurement, measurements.PRETRAINED)


def isolated(run: Run, measurement: Measured | None) -> Rows:
    """Layer-isolated drift, task by task."""
    assert measurement is not None  # drawn only if it is measured
    table = measurements.layers(run, measurement)
    return Rows(table.assign(row=table["task"], value=table["relative"])[CELL])


def objective(run: Run, measurement: Measured | None) -> Rows:
    """LOT's objective after the merge as a share of its value before."""
    assert measurement is not None  # drawn only if it is measured
    table = measurements.objective(run, measurement)
    share = table["merged"] / table["pretrained"].where(table["pretrained"] > 0)
    return Rows(table.assign(row="merged", title="Merged", value=share)[CELL])


def signs(run: Run, measurement: Measured | None) -> Rows:
    """Sign agreement over random signs in every space."""
    assert measurement is not None  # drawn only if it is measured
    table = conflict_signs.by_layer(measurement, conflict_signs.DENSITY)
    return Rows(table.assign(row=table["space"], value=table["excess"])[CELL])


def elections(run: Run, measurement: Measured | None) -> Rows:
    """The share of each expert's entries that survives the election of signs."""
    assert measurement is not None  # drawn only if it is measured
    table = conflict_signs.elections(measurement, conflict_signs.DENSITY)
    return _by_expert(run, table, "survived")


def pairs(run: Run, measurement: Measured | None) -> Rows:
    """Cosine of the task vectors of every two experts, whichever of the two a run names first."""
    assert measurement is not None  # drawn only if it is measured
    table = conflict_pairs.by_tensor(str(measurement.path), measurement, "cosine", 1.0)
    both = [sorted(pair) for pair in zip(table["first"], table["second"], strict=True)]
    titles = [" · ".join(pair) for pair in both]  # as on the page of one run
    return Rows(table.assign(row=["\n".join(pair) for pair in both], title=titles)[CELL])

"""The tables of the Drift page's charts on putting weights back to pretrained.

The true map measures how accuracy changes with each tensor put back; the first-order map predicts it from one gradient,
as a change of the margin: the cosine of the right class minus the largest other one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from app.page_text import format_signed, look_up_names
from app.reading import measurements, page_data
from app.reading.figures import cache_table
from merging.images.benchmarks.paired_scores import AVERAGE, IN_DOMAIN, OUT_OF_DOMAIN
from merging.models.families import Role
from merging.study.analysis import measurement_store as stored_measurements
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import role_name

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.analysis.measurement_subject import MeasurementResult

DOMAIN_TITLES = {IN_DOMAIN: "In domain", OUT_OF_DOMAIN: "Out of domain"}
BLOCK_ROWS = "Blocks, "
LEVEL_NAMES = {"block": "{}", "kind": "all {} tensors", "tensor": "{}"}
ROLE_NAMES = {str(role) for role in Role}
BLOCK_PREFIX = re.compile(r"^(?:visual\.)?transformer\.resblocks\.(\d+)\.")
PREDICTIONS = {  # name of a prediction of the first-order map in pickers -> column of the measurement
    "putting a tensor back": "put_back",
    "taking an expert's part out, in domain": ("take_out", IN_DOMAIN),
    "taking an expert's part out, out of domain": ("take_out", OUT_OF_DOMAIN),
    "giving a tensor back to an expert, in domain": ("give_back", IN_DOMAIN),
    "giving a tensor back to an expert, out of domain": ("give_back", OUT_OF_DOMAIN),
}


def partial_result(run: Run) -> MeasurementResult | None:
    """The results so far of a running measurement of the true map; None if there are none."""
    return stored_measurements.find_partial(
        measurements.RESET_TO_PRETRAINED, page_data.store(), page_data.benchmark(), run.id
    )


def revert_cells(run: Run, changes: pd.DataFrame) -> pd.DataFrame:
    """The table of ``revert_map``: averages, whole blocks and tasks; NaN where a tensor is not measured yet."""
    return _revert_cells_cached(run.id, changes, measurements.titles_by_task())


@cache_table
def _revert_cells_cached(run_id: str, changes: pd.DataFrame, titles: dict[str, str]) -> pd.DataFrame:
    import pandas as pd

    tensors = page_data.run_table(run_id, "tensors")[measurements.TENSOR_COLUMNS]
    numbers = ["before", "after", "change", "low", "high", "margin", "n"]
    tensor_changes, block_changes = (changes[changes["level"] == level] for level in ("tensor", "block"))
    averages = [scope for scope in DOMAIN_TITLES if scope in set(changes["over"])]
    frames = []
    for scope in [*averages, *(name for name in dict.fromkeys(changes["over"]) if name not in DOMAIN_TITLES)]:
        rows = tensor_changes[tensor_changes["over"] == scope][["name", *numbers]].rename(columns={"name": "tensor"})
        title = DOMAIN_TITLES.get(scope) or titles.get(scope, scope)
        frames.append(tensors.merge(rows, on="tensor", how="left").assign(row=scope, title=title))
        if scope in DOMAIN_TITLES:
            block_rows = block_changes[block_changes["over"] == scope][["name", *numbers]].rename(
                columns={"name": "section"}
            )
            merged = tensors.merge(block_rows, on="section", how="left")
            title = f"{BLOCK_ROWS}{scope}"
            frames.append(merged.assign(row=title, title=title))
    return pd.concat(frames, ignore_index=True)


def change_averages(changes: pd.DataFrame, levels: Sequence[str], max_rows: int | None = None) -> pd.DataFrame:
    """A row for each restored tensor, kind or block: its change in points with the interval, as text, by domain.

    With ``max_rows``, only the largest gains out of domain (in domain, if no task is out of domain).
    """
    import pandas as pd

    rows = changes[(changes["group"] == AVERAGE) & changes["level"].isin(levels)]
    domains = [scope for scope in DOMAIN_TITLES if scope in set(rows["over"])]
    largest = rows[rows["over"] == domains[-1]]
    largest = largest if max_rows is None else largest.nlargest(max_rows, "change")
    table = largest[["level", "name"]].reset_index(drop=True)
    for scope in domains:
        domain_rows = rows[rows["over"] == scope].set_index(["level", "name"])[["change", "low", "high"]]
        numbers = domain_rows.loc[pd.MultiIndex.from_frame(table[["level", "name"]])].to_numpy(float)
        table[DOMAIN_TITLES[scope]] = [
            f"{format_signed(100 * change)} ({format_signed(100 * low)} to {format_signed(100 * high)})"
            for change, low, high in numbers
        ]
    names = [
        LEVEL_NAMES[level].format(_short_name(name)) for level, name in zip(table["level"], table["name"], strict=True)
    ]
    return table.drop(columns="level").assign(name=names)


def _short_name(name: str) -> str:
    """A tensor's name without the beginning that all names of a block share; a role in words."""
    short = BLOCK_PREFIX.sub(r"block \1, ", name)
    return role_name(short) if short in ROLE_NAMES else short


def predicted_cells(run: Run, measured: StoredMeasurement, prediction: str) -> pd.DataFrame:
    """The table of ``first_order_map`` for one of ``PREDICTIONS``."""
    shown = PREDICTIONS[prediction]
    tensors = page_data.run_table(run.id, "tensors")[measurements.TENSOR_COLUMNS]
    if isinstance(shown, str):
        rows = measurements.measured_table(measured, "changes").rename(columns={"over": "row", shown: "predicted"})
        rows = rows.sort_values("row", key=lambda names: ~names.isin(list(DOMAIN_TITLES)), kind="stable")
        titles = look_up_names(rows["row"], DOMAIN_TITLES | measurements.titles_by_task())
    else:
        column, scope = shown
        rows = measurements.measured_table(measured, "experts")
        rows = rows[rows["over"] == scope].rename(columns={"expert": "row", column: "predicted"})
        titles = look_up_names(rows["row"], measurements.titles_by_task())
    table = rows.assign(title=titles)[["row", "title", "tensor", "predicted"]]
    return table.merge(tensors, on="tensor", validate="many_to_one")


def drift_and_change(run: Run, drift: StoredMeasurement, changes: pd.DataFrame, scope: str) -> pd.DataFrame:
    """The table of ``drift_and_put_back``: each tensor's drift (mean over tasks), its change, and both ranks."""
    drift_by_tensor = (
        measurements.layer_drift_table(run, drift).groupby("tensor", sort=False)["relative"].mean().rename("drift")
    )
    rows = changes[(changes["level"] == "tensor") & (changes["over"] == scope)].rename(columns={"name": "tensor"})
    table = rows[["tensor", "change", "low", "high", "n"]].merge(drift_by_tensor, on="tensor")
    table = table.merge(
        page_data.run_table(run.id, "tensors")[measurements.TENSOR_COLUMNS], on="tensor", validate="one_to_one"
    )
    ranks = {f"{name}_rank": table[name].rank(ascending=False) for name in ("drift", "change")}
    return table.assign(**ranks)


class RankCorrelation(NamedTuple):
    """Spearman's ρ of the first-order map with the true one's changes of accuracy and of the margin, over n tensors.

    ``over`` names the domain whose tasks they average.
    """

    over: str
    accuracy: float
    margin: float
    n: int


def rank_correlations(first_order: StoredMeasurement, changes: pd.DataFrame) -> list[RankCorrelation]:
    """The rank correlations of the first-order map with the true map, in and out of domain."""
    from merging.study.analysis.correlation import fit_line

    predicted = measurements.measured_table(first_order, "changes").set_index(["over", "tensor"])["put_back"]
    correlations = []
    for scope in DOMAIN_TITLES:
        rows = changes[(changes["level"] == "tensor") & (changes["over"] == scope)]
        if rows.empty or scope not in predicted.index.get_level_values(0):
            continue
        x = predicted.loc[scope].reindex(rows["name"]).to_numpy(float)
        fits = [fit_line(x, rows[column].to_numpy(float)) for column in ("change", "margin")]
        correlations.append(RankCorrelation(scope, fits[0].spearman, fits[1].spearman, fits[0].n))
    return correlations

"""The tables of the charts of answers by depth over whole data sets, from the stored measurement.

An answer "turns" at the depth from which it is the final one; it "parts" where it begins to differ from the
reference's. ``RESTORED_TABLE`` is about images that tokens restored from another model, the donor, make right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.reading import measurements, page_data
from app.reading.figures import cache_table
from app.reading.measurements import MeasuredRuns
from merging.images.benchmarks.paired_scores import IN_DOMAIN
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["depth", "share", "low", "high", "n"]
REFERENCE = "reference"
RESTORED_TABLE = "mended"  # the measurement's table of images that restored tokens fix


def build_depth_table(pairs: MeasuredRuns, table_name: str, group: str) -> pd.DataFrame:
    """The table of ``data_set_depths`` for "turns", "parts" or "accuracy" over a domain's or a data set's images."""
    import pandas as pd

    frames = []
    for index, (run, measurement) in enumerate(pairs):
        rows = measurements.measured_table(measurement, table_name).rename(columns={"accuracy": "share"})
        rows = rows[rows["over"] == group]
        models = rows["model"] if "model" in rows else pd.Series("run", rows.index)
        run_rows = rows[models == "run"]
        frames.append(run_rows[COLUMNS].assign(run=run.id, label=run.name, kind="run"))
        if index == 0 and (models == REFERENCE).any():  # all runs merge the same experts, so they have one reference
            reference_rows, is_in_domain = (
                rows[models == REFERENCE],
                group == IN_DOMAIN or (rows["group"] == IN_DOMAIN).all(),  # the domain, or a data set in it
            )
            label = "Own expert" if is_in_domain else "Pretrained"
            frames.append(reference_rows[COLUMNS].assign(run=REFERENCE, label=label, kind=REFERENCE))
    return pd.concat(frames, ignore_index=True)


def build_mended_table(pairs: MeasuredRuns, group: str, donor: str) -> pd.DataFrame:
    """The table of ``data_set_mended`` with tokens of the ``donor`` model: "reference" or "pretrained"."""
    import pandas as pd

    frames = []
    for run, measurement in pairs:
        rows = measurements.measured_table(measurement, RESTORED_TABLE)
        rows = rows[(rows["over"] == group) & (rows["donor"] == donor)]
        frames.append(rows[[*COLUMNS, "tokens"]].assign(run=run.id, label=run.name))
    return pd.concat(frames, ignore_index=True)


def build_task_table(run: Run, measurement: StoredMeasurement, value: str) -> pd.DataFrame:
    """The table of ``data_set_tasks``; ``RESTORED_TABLE`` counts the images that the reference's class token fixes."""
    rows = measurements.measured_table(measurement, value)
    if value == RESTORED_TABLE:
        rows = rows[(rows["donor"] == REFERENCE) & (rows["tokens"] == "class")]
    titles = measurements.titles_by_task()
    rows = rows[rows["over"].isin(list(titles))].rename(columns={"over": "task"})
    return rows[["task", *COLUMNS]].assign(title=rows["task"].map(titles), label=run.name)


def list_image_groups(pairs: MeasuredRuns) -> dict[str, str]:
    """{name in pickers: key in tables} of the groups of images: both domains, then every data set."""
    titles, groups = measurements.titles_by_task(), {}
    for _, measurement in pairs:
        for group in measurements.measured_table(measurement, "turns")["over"]:
            groups[titles.get(group, str(group))] = str(group)
    return dict(sorted(groups.items(), key=lambda item: item[1] in titles))


@cache_table
def find_cell_images(measurement: StoredMeasurement, value: str, task: str, depth: int) -> pd.DataFrame:
    """The images that a cell of ``data_set_tasks`` counts."""
    from merging.study.measurements.depths import read_depths
    from merging.study.measurements.find_images import find_by_depth

    benchmark = page_data.benchmark()
    return find_by_depth(value, read_depths(measurement, benchmark, {task}), benchmark, depth=depth)

"""Runs of networks other than CLIP on the Drift page: layer by layer, from files of the inputs of experts' layers."""

from __future__ import annotations

from collections.abc import Sequence

from app.reading import measurements, page_data
from app.widgets.jobs import measure_button
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import clean_text, span

LAYERS_NOTE = "Layer by layer works with layer inputs (`merging.capture`)."
CLIP_ONLY = f"Drift by depth passes images through CLIP towers. {LAYERS_NOTE}"
OTHER_NETWORK_NOTE = (
    f"**{{title}}**: Drift by depth passes images through CLIP towers; this run is of {{network}}. {LAYERS_NOTE}"
)
NOT_MEASURED = "Drift layer by layer, from the layer inputs that the recipe names, has not been measured for"


def list_offered_runs(stored_runs: Sequence[Run]) -> list[Run]:
    """The merges of other networks whose layers are measured, or can be because their recipes name layer inputs."""
    others = [run for run in page_data.list_merges(stored_runs) if run.network]
    return [
        run
        for run in others
        if (run.recipe and run.recipe.data_files.layer_inputs)
        or measurements.find_measurement(measurements.LAYER_DRIFT, run.id)
    ]


def rows_in_words(measurement: StoredMeasurement) -> str:
    """A sentence on the rows and files of a measurement; plain text."""
    notes = measurement.notes
    files = ", ".join(clean_text(name, 80) for name in notes["files"].values())
    doubts = "".join(f" {clean_text(doubt, 200)}" for doubt in notes["doubts"])
    n = span((notes["fewest_rows"], notes["rows"]))
    return f"n = {n} rows per tensor and task, from {files}.{doubts} {measure_button.origin_in_words([measurement])}"

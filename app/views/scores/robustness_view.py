"""The view of Scores on corrupted images: accuracy by severity, and what runs lose relative to intact images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from app import page_text
from app.reading import measurements, samples, score_tables
from app.reading.figures import cache_table
from app.reading.measurements import MeasuredRuns
from app.session import address, run_choice
from app.widgets import chart_view, page_parts, run_picker
from app.widgets.jobs import measure_button, shown_measurements
from merging.images.benchmarks.paired_scores import IN_DOMAIN, OUT_OF_DOMAIN
from merging.study.runs.run import Run
from viz.figure_text import span

if TYPE_CHECKING:
    from merging.study.analysis.measurement_store import StoredMeasurement

HALVES = {"reporting half": "", "choosing half": "_choosing"}
DOMAINS = {"In domain": IN_DOMAIN, "Out of domain": OUT_OF_DOMAIN}
MAX_FIRST_RUNS = 4  # runs shown at first if none is chosen
ALL = "all"  # the name, in tables, of the mean over all kinds of corruption, or over severities
KIND_TITLES = {ALL: "Mean of all kinds", "noise": "Noise", "blur": "Blur", "contrast": "Less contrast"}
KIND_TITLES |= {"JPEG": "JPEG", "pixelation": "Pixelation"}
OFFER = "Accuracy on corrupted images has not been measured for"
NOTE = (
    "Relative loss: 1 − A/A₀, where A₀ is the accuracy on intact images and A the mean over the five kinds of "
    "corruption and five severities; a model that was poor before has less to lose. All models answer the same "
    "n = {n} images per data set of the {half}, sampled with seed {seed}; accuracies are means over data sets, with "
    "95% intervals over images ({resamples:,} resamples, losses paired with intact images, but no runs with each "
    "other). The severities are those of {source}. The experts answer their own tasks only. {origin}"
)
LOSSES_NOTE = (
    " Corrupted is accuracy in domain on corrupted images, the mean over kinds and severities, and Rel. loss the share "
    "of the accuracy on intact images that this costs, both on fewer images and with 95% intervals over them; the view "
    "“corrupted images” measures runs without a number."
)
LOSS_COLUMNS = {  # of ``find_losses``: those of the measured table
    "corrupted": "accuracy", "corrupted_low": "low", "corrupted_high": "high",
    "relative_loss": "loss", "loss_low": "loss_low", "loss_high": "loss_high",
}  # fmt: skip
SOURCES = {True: "CIFAR-10-C", False: "ImageNet-C"}  # by whether the images are small


def draw_view(runs: Sequence[Run]) -> None:
    """Draw the pickers, the chart by severity, the table of losses, and what is missing."""
    by_id = {run.id: run for run in runs}
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        suffix = ""
        if not samples.is_whole_test_set():
            suffix = page_parts.pick_label("Images", HALVES, address.CORRUPTED_HALF, width=180)
        over = page_parts.pick_label("Data sets", DOMAINS, address.CORRUPTED_DOMAIN, width=180)
    key = f"{measurements.ROBUSTNESS}{suffix}"
    ready = [run.id for run in runs if measurements.find_measurement(key, run.id)]
    chosen, missing_ids = run_choice.resolve_runs(list(by_id), (ready or list(by_id))[:MAX_FIRST_RUNS])
    if missing_ids:
        run_picker.draw_missing_runs(missing_ids, offers="This view shows runs that were evaluated.")
    run_picker.draw_runs_picker(by_id, chosen, "robustness_runs")
    if not chosen:
        return
    groups = run_picker.group_by_models([by_id[run_id] for run_id in chosen])
    for sentence in page_text.marks_in_words(groups[0]):
        page_parts.draw_caution(sentence, st.caption)
    found = {run.id: measurements.find_measurement(key, run.id) for run in groups[0]}
    references = measurements.find_measurement(f"{measurements.ROBUSTNESS_REFERENCES}{suffix}", groups[0][0].id)
    if stored := [(run, measured) for run in groups[0] if (measured := found[run.id])]:
        _draw_results(stored, references, over)
    if unmeasured := [run for run in groups[0] if not found[run.id]]:
        seconds = shown_measurements.expected_seconds(
            [key] * len(unmeasured) + ([] if references else [f"{measurements.ROBUSTNESS_REFERENCES}{suffix}"])
        )
        measure_button.draw_missing(key, unmeasured, OFFER, seconds=seconds)
    run_picker.draw_other_groups(groups)


def find_losses(models: Sequence[str]) -> pd.DataFrame:
    """``LOSS_COLUMNS`` (shares, in domain, reporting half) of the measured ones of these models.

    The index has their names: ids of runs, and "pretrained" and "individual", which are measured with a run.
    """
    found: dict[str, list[float]] = {}
    for run in (name for name in models if name not in score_tables.REFERENCE_NAMES):
        measured = measurements.find_measurement(measurements.ROBUSTNESS, run)
        references = measured and measurements.find_measurement(measurements.ROBUSTNESS_REFERENCES, run)
        for one in filter(None, (measured, references)):
            whole = _read_losses_in_domain(one)
            names = whole["model"].where(whole["model"].isin(list(score_tables.REFERENCE_NAMES)), run)
            found |= dict(zip(names, whole[list(LOSS_COLUMNS.values())].to_numpy(float).tolist(), strict=True))
    return pd.DataFrame.from_dict(found, orient="index", columns=list(LOSS_COLUMNS))


@cache_table
def _read_losses_in_domain(measured: StoredMeasurement) -> pd.DataFrame:
    """The rows of all corruptions together, in domain."""
    rows = measured.table("domains")
    return rows[(rows["over"] == IN_DOMAIN) & (rows["corruption"] == ALL) & (rows["severity"] == ALL)]


def describe_losses(whole: pd.DataFrame, over: str) -> str:
    """The range of relative losses of runs, and whether the intervals at its ends overlap, in a sentence."""
    rows = whole[(whole["corruption"] == ALL) & (whole["kind"] == "merge")].dropna(subset="loss").sort_values("loss")
    if rows.empty:
        return f"Relative losses {over} are undefined: these runs answer no intact image right."
    words = [
        f"**{page_text.safe_text(row['label'], 60)}** {_format_interval(row, 'loss', 'loss_low', 'loss_high')}"
        for _, row in rows.iloc[[0, -1]].iterrows()
    ]
    if len(rows) == 1:
        return f"Of its accuracy {over}, corrupted images cost {words[0]}."
    overlap = "overlap" if rows["loss_high"].iloc[0] >= rows["loss_low"].iloc[-1] else "do not overlap"
    return (
        f"Of the accuracy {over}, corrupted images cost from {words[0]} to {words[1]}; these two intervals {overlap}."
    )


def _draw_results(stored: MeasuredRuns, references: StoredMeasurement | None, over: str) -> None:
    rows = _join_models(stored, references)
    rows = rows[rows["over"] == over]
    if rows.empty:
        st.info(f"No data set is {over} for these runs.")
        return
    whole, by_severity = rows[rows["severity"] == ALL], rows[rows["severity"] != ALL]
    st.markdown(describe_losses(whole, over))
    chart_view.draw_chart(
        "corrupted_accuracy",
        by_severity.assign(
            corruption=by_severity["corruption"].map(KIND_TITLES), severity=by_severity["severity"].astype(int)
        ),
        name="scores_corrupted", runs=[run.id for run, _ in stored], sources=[run for run, _ in stored],
        caption=_describe_images([*(measured for _, measured in stored), *([references] if references else [])]),
    )  # fmt: skip
    st.header("What each kind of corruption costs", anchor=False)
    table = pd.DataFrame({"Model": whole.groupby("run", sort=False)["label"].first()})
    mean = whole[whole["corruption"] == ALL].set_index("run")
    table["Accuracy, corrupted"] = [_format_interval(mean.loc[run], "accuracy", "low", "high") for run in table.index]
    columns = {"Model": st.column_config.TextColumn(width=180, pinned=True)}
    for kind, title in KIND_TITLES.items():
        rows = whole[whole["corruption"] == kind].set_index("run")
        losses = [_format_interval(rows.loc[run], "loss", "loss_low", "loss_high") for run in table.index]
        table["Relative loss" if kind == ALL else f"{title}, loss"] = losses
    page_parts.draw_table(table, "Relative loss of every model by kind of corruption", columns)


def _join_models(stored: MeasuredRuns, references: StoredMeasurement | None) -> pd.DataFrame:
    """The accuracies of all models, with the columns run, label and kind."""
    frames = [
        measurements.measured_table(found, "domains").assign(
            run=run.id, label=page_text.title_with_note(run), kind="merge"
        )
        for run, found in stored
    ]
    if references is not None:
        rows = measurements.measured_table(references, "domains")
        labels = rows["model"].map(score_tables.REFERENCE_NAMES)
        frames.append(rows.assign(run=rows["model"], label=labels, kind=rows["model"]))
    return pd.concat(frames, ignore_index=True)


def _format_interval(row: pd.Series, value: str, low: str, high: str) -> str:
    """A share with its interval, in percent; both may be undefined (NaN)."""
    if pd.isna(row[value]):
        return "undefined"
    if pd.isna(row[low]):
        return f"{100 * row[value]:.1f}% (interval undefined)".replace("-", "\N{MINUS SIGN}")
    words = f"{100 * row[value]:.1f}% ({100 * row[low]:.1f} to {100 * row[high]:.1f})"
    return words.replace("-", "\N{MINUS SIGN}")


def _describe_images(found: Sequence[StoredMeasurement]) -> str:
    notes = found[0].notes
    half = samples.scored_part(str(notes["split"]))
    return NOTE.format(
        n=span((notes["fewest_images"], notes["images"])), half=half, seed=notes["seed"],
        resamples=notes["resamples"], source=SOURCES[bool(notes["small"])],
        origin=measure_button.origin_in_words(found),
    )  # fmt: skip

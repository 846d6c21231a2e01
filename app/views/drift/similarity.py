"""A run's features against another model's on the Drift page: CKA, depth by depth, on the same images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from app.reading import measurements, page_data
from app.reading.runs import run_names
from app.session import address
from app.session.click_errors import guarded_fragment
from app.views.drift.by_depth import TOKENS
from app.widgets import chart_view, page_parts, run_picker
from app.widgets.jobs import measure_button
from merging.base.text import duration_text
from merging.study.analysis.measurement_registry import find_measurement
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run, join_run_ids
from viz.figure_text import clean_text

FORMS = ("debiased", "linear")
NO_SINGLE_MODEL = (
    "These runs give one model per task, or have modules on top of the merged model. Choose a run with one model above."
)
NOT_COMPARED = (
    "These two models have not been compared. This reads the same images with both, about {} on two cores, and merges "
    "a run again whose weights are not stored."
)
AGAINST_HELP = "The reference models, and the other runs that are chosen above."
NOTE = (
    "Linear CKA is 1 for features that agree up to a rotation and one factor, and 0 for unrelated ones (Kornblith et "
    "al., 2019). The debiased form (Nguyen et al., 2021) does not grow when images are few, as the plain one does. "
    "Depth 0 is before block 0, depth b after b blocks; at depth 0 the class token is the same for all images, and has "
    "no number. n = {} images of the choosing half, sampled with seed {}. {}"
)


def draw_view(chosen: Sequence[Run], stored: Sequence[Run]) -> None:
    """Draw the similarity of one of the chosen runs and another model, or the button that measures it."""
    single = [run for run in chosen if not run.per_task and not run.adapt]
    if not single:
        st.info(NO_SINGLE_MODEL)
        return
    with st.container(horizontal=True, gap="medium"):
        references = page_data.references(single[0].benchmark, stored)
        run = run_picker.pick_one(single, "Features of", [one for one in single if _find(one, references)])
        others = _list_others(run, single, stored)
        if not others:
            st.info("No other model has been evaluated on this benchmark.")
            return
        other = others[st.selectbox(
            "Against", others, key=address.OTHER_MODEL, bind=address.BIND, width=320, help=AGAINST_HELP,
        )]  # fmt: skip
    subject = join_run_ids(sorted((run.id, other.id)))
    measurement = measurements.find_measurement(measurements.SIMILARITY, subject)
    if measurement is None:
        words = NOT_COMPARED.format(duration_text(find_measurement(measurements.SIMILARITY).seconds))
        measure_button.draw_missing_benchmark(measurements.SIMILARITY, words, subject)
        return
    _draw_map(run, other, measurement)


def _find(run: Run, references: Mapping[str, Run]) -> StoredMeasurement | None:
    """The stored similarity of a run and the pretrained model."""
    if (pretrained := references.get("pretrained")) is None:
        return None
    return measurements.find_measurement(measurements.SIMILARITY, join_run_ids(sorted((run.id, pretrained.id))))


def _list_others(run: Run, single: Sequence[Run], stored: Sequence[Run]) -> dict[str, Run]:
    """{name: model} of the references on the run's benchmark, the pretrained model first, and of the other runs."""
    references = page_data.references(run.benchmark, stored)
    first = [references.pop("pretrained")] if "pretrained" in references else []
    others = [*first, *references.values(), *(one for one in single if one.id != run.id)]
    names = run_names.name_runs(others)
    return {clean_text(names[one.id], 80): one for one in others}


@guarded_fragment
def _draw_map(run: Run, other: Run, measurement: StoredMeasurement) -> None:
    rows = measurements.measured_table(measurement, "cka")
    titles = measurements.titles_by_task()
    scopes = {titles.get(scope, scope): scope for scope in reversed(dict.fromkeys(rows["over"]))}
    chart_view.draw_question("cka_depths")
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        scope = page_parts.pick_label("Images", scopes, address.COMPARED_IMAGES, width=220)
        token = TOKENS[st.selectbox("Features", TOKENS, key=address.TOKEN, bind=address.BIND, width=220)]
        form = page_parts.pick_button("CKA", FORMS, address.SIMILARITY_METRIC)
    table = rows[(rows["over"] == scope) & (rows["token"] == token)]
    first, second = ("depth", "other_depth") if measurement.notes["runs"][0] == run.id else ("other_depth", "depth")
    table = table.rename(columns={"first": first, "second": second})
    note = NOTE.format(f"{int(table['n'].iloc[0]):,}", measurement.notes["seed"],
                       measure_button.origin_in_words([measurement]))  # fmt: skip
    chart_view.draw_chart(
        "cka_depths", table, name=f"cka_{run.id[:8]}_{other.id[:8]}", question_drawn=True, value=form,
        labels=(run.name, other.name), caption=note, sources=[run, other],
    )  # fmt: skip

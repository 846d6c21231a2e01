"""The fit report: whether models can be merged, their problems, and the tensors that a merge changes or leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text, permissions
from app.reading import page_data, recipes
from app.session import click_errors
from app.widgets import page_parts
from app.widgets.jobs import tray
from merging.base.errors import MergingError
from merging.base.files import tables
from merging.base.files.short_digest import short_digest
from merging.base.modes import VisitorAction
from merging.base.text import first_few
from merging.models.team.vocabulary_choices import COMMON
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    from merging.models.inspection.fit_report import FitReport
    from merging.recipes.recipe import Recipe
    from merging.tasks.queue.job_records import Job

MAX_DIRECT_BYTES = 500_000_000  # of new files that a merge reads itself; for more bytes, a job reads the files first
MAX_SENTENCES, MAX_TABLE_ROWS = 6, 2000  # of problems outside of the expander, and of the table of problems
MAX_TABLE_PX = 250  # height of that table
OPENING = "opened"  # the kind of remark on the opening of a file
CHECK_JOB, READ_JOB = "fit", "read"  # kinds of jobs: read every number for a report, read files before a merge
SAMPLED_NOTE = "Whether text tensors were trained is known only after reading every number, as the merge does anyway."


def check_models(pretrained: str, experts: Mapping[str, str], family: str = "", vocabulary: str = COMMON) -> FitReport:
    """The current report on models of a ``family``, the kind of network to read them as (empty: the recognized one).

    ``vocabulary`` says how tables with a row per token merge if models differ in their tokens.

    Raises:
        CheckpointError: a file cannot be opened.
    """
    states = tuple(page_data.file_state(reference) for reference in (pretrained, *experts.values()))
    return _check_cached(pretrained, tuple(experts.items()), family, vocabulary, states, _last_report_time())


def _last_report_time() -> int:
    """When a job last stored a report, in nanoseconds; 0 if none did."""
    from merging.sharing.catalog.fit_reports import FOLDER

    try:
        return (page_data.store().root / FOLDER).stat().st_mtime_ns
    except OSError:
        return 0


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner="Comparing the checkpoints …")
def _check_cached(
    pretrained: str,
    experts: tuple[tuple[str, str], ...],
    family: str,
    vocabulary: str,
    states: tuple[tuple[int, ...], ...],
    stored_at: int,
) -> FitReport:
    from merging.models.formats.model_sources import open_models
    from merging.models.inspection.fit_check import check_fit
    from merging.sharing.catalog import fit_reports

    base, checkpoints = open_models(pretrained, dict(experts), family)
    stored = (
        None if family or vocabulary != COMMON else fit_reports.find_report(page_data.store().root, base, checkpoints)
    )
    return stored or check_fit(base, checkpoints, sample=True, vocabulary=vocabulary)


def draw_report(
    pretrained: str,
    experts: Mapping[str, str],
    key_suffix: str,
    activation: str = "",
    family: str = "",
    vocabulary: str = COMMON,
) -> bool:
    """Draw the verdict in one line, and the whole report in an expander. Returns whether a merge can run.

    ``activation``, ``family`` and ``vocabulary`` are the recipe's; the activation, if not empty, overrides the models'
    files.

    Raises:
        CheckpointError: a file cannot be opened.
    """
    report = check_models(pretrained, experts, family, vocabulary)
    if activation:
        report = report.remove_kind("activation")
    draw_verdict(report)
    with st.expander("Fit report: what matches, what is merged, what is left out", icon=":material/fact_check:"):
        _draw_groups(report)
        _draw_distances(report)
        _draw_notes(report)
        _draw_table(report)
        _draw_extent(report, pretrained, experts, key_suffix)
    return report.mergeable


def draw_verdict(report: FitReport) -> None:
    """Draw the verdict, with the reasons if the models cannot be merged, or with the warnings to check first."""
    errors = [report.no_family] if report.no_family else []
    errors += [group.sentence() for group in report.groups if group.severity == "error"]
    warnings = [group.sentence() for group in report.groups if group.severity == "warning" and group.problem != OPENING]
    if not report.mergeable:
        st.error(f"**They cannot be merged.**\n\n{_list_sentences(errors)}", icon=":material/block:")
    elif warnings:
        st.warning(
            f"**They can be merged. Check this first:**\n\n{_list_sentences(warnings)}", icon=":material/warning:"
        )
    else:
        verdict = "The one tensor of every checkpoint fits."
        if report.tensors != 1:
            verdict = f"All {report.tensors} tensors of every checkpoint fit."
        st.markdown(f":material/check_circle: {verdict}")


def _list_sentences(sentences: Sequence[str]) -> str:
    """The first sentences as a Markdown list, and the number of the others."""
    remaining = (
        f"\n\n… and {len(sentences) - MAX_SENTENCES} more, in the report." if len(sentences) > MAX_SENTENCES else ""
    )
    return "\n".join(f"- {page_text.safe_text(sentence, 600)}" for sentence in sentences[:MAX_SENTENCES]) + remaining


def _draw_groups(report: FitReport) -> None:
    """Draw the number of occurrences of each problem in each checkpoint; a group has one problem of one checkpoint."""
    groups = [group for group in report.groups if group.problem != OPENING]
    if not groups:
        st.markdown("No tensor is missing or extra, or has another shape or type.")
        return
    counts = [f"{len(group.problems)} × {group.problem} in {group.checkpoint}" for group in groups]
    st.markdown(f"Found: {page_text.safe_text(first_few(counts, 12), 900)}.")


def _draw_distances(report: FitReport) -> None:
    """Draw the distance of every expert from the pretrained model."""
    if not report.distances:
        return
    rows = {
        "Expert": list(report.distances),
        "Change": [distance.change_text() for distance in report.distances.values()],
        "Cosine": [distance.cosine_text() for distance in report.distances.values()],
        "Verdict": [
            "the pretrained model itself" if distance.unchanged else "unrelated" if distance.unrelated else "fine-tuned"
            for distance in report.distances.values()
        ],
    }
    column = st.column_config.TextColumn
    columns = {
        "Expert": column(width=125),
        "Change": column(width=95, help="Norm of the task vector relative to the norm of the weights."),
        "Cosine": column(width=95, help="Cosine of the weights to the pretrained model's."),
        "Verdict": column(width=170),
    }
    page_parts.draw_table(rows, "How far every expert is from the pretrained model", columns, "auto")


def _draw_notes(report: FitReport) -> None:
    """Draw notes on merged and copied tensors and on the opening of files; equal notes are written once."""
    notes: dict[str, list[str]] = {}
    for note in report.notes:
        name = next((name for name in ("pretrained", *report.distances) if note.startswith(f"{name}: ")), "")
        notes.setdefault(note.removeprefix(f"{name}: ") if name else note, []).append(name)
    for group in report.groups:
        if group.problem == OPENING:
            notes.setdefault(group.text(), []).append(group.checkpoint)
    lines = []
    for sentence, names in notes.items():
        prefix = f"{first_few(names, 3)}: " if names[0] else ""
        lines.append(f"- {page_text.safe_text(prefix + sentence, 500)}")
    st.markdown("\n".join(lines))


def _draw_table(report: FitReport) -> None:
    """Draw every tensor that does not fit."""
    if not report.problems:
        return
    rows = report.table()
    if len(rows) > MAX_TABLE_ROWS:
        st.caption(f"The first {MAX_TABLE_ROWS:,} of {len(rows):,} rows; the file has them all.")
    shown = rows.head(MAX_TABLE_ROWS).map(clean_text, limit=200)
    height = page_parts.table_height(len(rows), MAX_TABLE_PX)
    page_parts.draw_table(shown, "Every tensor that does not fit", height=height)
    st.download_button(
        "Data (CSV)", lambda: tables.csv_bytes(rows), "fit_report.csv", "text/csv", key=f"fit_csv_{len(rows)}",
        on_click="ignore", type="tertiary", icon=":material/table:",
    )  # fmt: skip


def _draw_extent(report: FitReport, pretrained: str, experts: Mapping[str, str], key_suffix: str) -> None:
    """Draw the extent of the check, and a button that reads every number."""
    if not report.sampled:
        st.caption(report.read)
        return
    st.caption(f"{report.read} {SAMPLED_NOTE}")
    subject = job_subject(pretrained, experts)
    job = find_job(CHECK_JOB, subject)
    if job is not None and (job.is_live or job.error):
        tray.draw_job(job, f"fit_{key_suffix}")
    if permissions.is_allowed(VisitorAction.COMMAND) and (job is None or not job.is_live):
        st.button(
            "Check every number", key=f"check_{key_suffix}_{subject}", on_click=_start_check,
            args=(subject, pretrained, experts), icon=":material/search_check:",
            help="In the background; the result then appears here.",
        )  # fmt: skip


def find_missing_needs(recipe: Recipe) -> str:
    """A sentence on inputs that a chain needs and these models lack; empty if there are none."""
    if problem := _find_network_problem(recipe):
        return problem
    if recipe.exemplars is None:
        return ""
    needs = f"{page_text.chain_title(recipe)} needs training images, which come from a benchmark folder."
    if reason := page_data.why_not_evaluated(recipe.pretrained):
        return f"{needs} There are none for these models: {reason}"
    experts = page_data.benchmark().experts
    if unknown := [name for name, _ in recipe.experts if name not in experts]:
        return (
            f"{needs} It has none for {first_few(unknown, 3)}; experts are named like its tasks: {first_few(experts)}."
        )
    return ""


def _find_network_problem(recipe: Recipe) -> str:
    """The reason why a chain does not work on these models of a network other than CLIP; empty if it works."""
    if not recipes.network_name(recipe.pretrained, recipe.family):
        return ""
    from merging.engine.needs import check_kind
    from merging.study.runs.opened_recipe import open_inputs

    try:
        pretrained = recipe.models()["pretrained"].open("pretrained", family=recipe.family)
        check_kind(recipe, pretrained, recipe.data_files.layer_inputs or None, recipe.data_files.gradients or None)
        if recipe.data_files.to_plain():
            open_inputs(recipe)  # also opens the files of data
    except MergingError as error:
        return str(error)
    return ""


def submit_recipe(recipe: Recipe) -> Job:
    """The job of a recipe; for large files that were never read, a job that reads them and then submits the recipe."""
    from merging.models import digest_cache
    from merging.study.runs.opened_recipe import open_inputs

    digest_cache.DIGESTS.load(page_data.store().root)
    if open_inputs(recipe).unread_bytes <= MAX_DIRECT_BYTES:
        return page_data.job_queue().submit(recipe)
    references = [recipe.pretrained, *(reference for _, reference in recipe.experts)]
    title = f"Reading the files of {recipe.title or recipe.text()}"
    subject = job_subject(recipe.to_yaml(), dict(recipe.experts))
    return page_data.job_queue().command(READ_JOB, subject, title, ["digest", *references], next_recipe=recipe)


def job_subject(pretrained: str, experts: Mapping[str, str]) -> str:
    """A short name for a choice of models, as the subject of a job."""
    return short_digest(repr((pretrained, tuple(experts.items()))))


def find_job(key: str, subject: str) -> Job | None:
    """The newest job of a kind on a subject."""
    return next((job for job in page_data.job_queue().list_jobs() if job.kind == key and job.subject == subject), None)


@click_errors.guard_callback
def _start_check(subject: str, pretrained: str, experts: Mapping[str, str]) -> None:
    words = ["fit", f"--pretrained={pretrained}", "--values", "--keep"]  # read every value, and store the report
    words += [f"--expert={name}={reference}" for name, reference in experts.items()]
    page_data.job_queue().command(
        CHECK_JOB, subject, f"Checking every number of {plural(len(experts), 'expert')}", words
    )

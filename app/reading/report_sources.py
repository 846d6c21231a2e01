"""The facts of each run and sweep that a report names, and adding views to the report."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs

from app import page_text
from app.reading import expert_names, figures, page_data, samples
from app.session import address, report_keeper
from app.session import benchmark_choice as session_benchmark
from merging.base import settings
from merging.base.errors import MergingError
from merging.base.files.plain_yaml import read_plain_yaml, write_yaml
from merging.base.text import duration_text
from merging.models.model_references import EXPERTS
from merging.models.task_checkpoints import flatten_experts, nest_experts
from merging.study.runs.run import PRECOMPUTED, Run
from viz.report.report_contents import Report, ReportView, Source

if TYPE_CHECKING:
    import pandas as pd

    from app.reading.sweeps import SweepResults
    from merging.study.sweeps.sweep import Sweep
    from viz.report.private_names import PrivateNames

ChartSources: TypeAlias = "Sequence[Run | Sweep] | None"  # None: those that the chart's table and the address name
NO_SEED = "none, because nothing in it is random"


def add_view(view: ReportView, sources: Sequence[Source], chart_key: str) -> None:
    """Add a view to the report, or note why it cannot be added; the note appears at the button ``chart_key``."""
    draft, size = report_keeper.current_report(), view_size(view)
    if refusal := draft.refusal(size):
        draft.refused[chart_key] = refusal
    else:
        draft.add(view, size, sources)


def view_size(view: ReportView) -> int:
    """Bytes that a view takes in the document, approximately."""
    from viz.report.document import figure_json
    from viz.report.report_tables import table_html

    options = {"present": False, **view.options}  # not in the large type of a projector
    figure = figures.draw_figure(view.key, view.table, options)
    return len(figure_json(figure)) + len(table_html(view.table))


def list_sources(
    table: pd.DataFrame, options: Mapping[str, Any], chosen: ChartSources, view_address: str
) -> list[Source]:
    """The runs and sweeps that a chart shows, with the facts to compute them again."""
    return [make_source(source) for source in shown_sources(table, options, chosen, view_address)]


def shown_sources(
    table: pd.DataFrame, options: Mapping[str, Any], chosen: ChartSources, view_address: str
) -> list[Run | Sweep]:
    """The runs and sweeps that a chart shows."""
    if chosen is not None:
        return list(chosen)
    ids = [str(run_id) for run_id in table["run"].unique()] if "run" in table else []
    ids = ids or [str(run_id) for run_id in options.get("runs") or ()] or run_ids_in_address(view_address)
    runs = (page_data.store().find(run_id.partition(":")[0]) for run_id in dict.fromkeys(ids))
    return [run for run in runs if run is not None]


def split_address(address: str) -> tuple[str, dict[str, str | list[str]]]:
    """The path and the query of a view's address, as ``view_state.relative_address`` writes it."""
    page, _, query = address.partition("?")
    return page, {key: values if values[1:] else values[0] for key, values in parse_qs(query).items()}


def run_ids_in_address(view_address: str) -> list[str]:
    """Ids of the runs that a view's address names."""
    query = split_address(view_address)[1]
    run, runs = (str(query.get(key, "")) for key in (address.RUN, address.RUNS))
    return [run] if run else [run_id for run_id in runs.split(",") if run_id]


def make_source(run_or_sweep: Run | Sweep) -> Source:
    """A run or a sweep with the facts to compute it again, without names and paths of this machine."""
    if not isinstance(run_or_sweep, Run):
        from app.reading import sweeps  # loads torch, which Home does not need

        facts = tuple(_list_sweep_facts(sweeps.sweep_results(run_or_sweep)))
        digests = _label_digests(*sweeps.input_digests(run_or_sweep))
        return Source(
            run_or_sweep.id,
            "Sweep",
            sweeps.sweep_title(run_or_sweep),
            facts,
            digests,
            portable_recipe(run_or_sweep.to_yaml()),
        )
    digests = _label_digests(run_or_sweep.benchmark, run_or_sweep.inputs.items())
    return Source(
        run_or_sweep.id,
        "Run",
        run_or_sweep.title,
        tuple(_list_run_facts(run_or_sweep)),
        digests,
        portable_recipe(run_or_sweep.recipe_yaml),
    )


def _list_run_facts(run: Run) -> Iterator[tuple[str, str]]:
    try:
        recipe = run.recipe
    except MergingError:  # a method of another version
        recipe = None
    exemplars = recipe.exemplars if recipe else None
    yield "Chain", page_text.chain_words(recipe) if recipe else " → ".join(run.chain) or "evaluated unchanged"
    if run.kind == "merge":
        experts = page_text.join_words([expert_names.expert_name(name) for name in run.experts])
        yield (
            "Merges",
            f"{experts}{f'; {page_text.per_task_in_words(run)} ‡' if page_text.per_task_in_words(run) else ''}",
        )
    if exemplars:
        yield "Exemplars", f"{exemplars.per_task} per task, drawn with seed {exemplars.seed}"
    if adapted := page_text.adapting_in_words(run):
        yield "Learned from", adapted
    yield "Seed", NO_SEED if run.seed is None else str(run.seed)
    if run.test_images:
        yield "Scored on", run.test_images
    if run.licenses:
        yield "Licenses", "; ".join(f"{name}: {stated}" for name, stated in run.licenses.items())
    took = f"in {duration_text(sum(run.seconds.values()))} on the machine that wrote this report"
    yield "Computed", f"on {run.device}, {'precomputed' if run.provenance == PRECOMPUTED else took}"
    yield "Versions", _versions_in_words(run.versions.items())
    if run.warnings:
        yield "Remarks", " ".join(run.warnings)


def _label_digests(benchmark: str | None, inputs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The sha-256 digests of the inputs of a run or sweep, by the roles of the files."""
    files = [("Benchmark", benchmark)] if benchmark else []
    files += [(name.removeprefix(EXPERTS), digest) for name, digest in inputs]
    return tuple((f"{name}, sha-256", digest) for name, digest in files)


def _list_sweep_facts(results: SweepResults) -> Iterator[tuple[str, str]]:
    sweep, points = results.sweep, list(results.points.values())
    for label, axis in zip(sweep.labels, sweep.axes, strict=True):
        yield label, ", ".join(f"{value:g}" for value in axis.values)
    yield "Recipes", page_text.join_words([recipe.title or page_text.chain_title(recipe) for recipe in sweep.recipes])
    images = f"at most {sweep.images:,} images" if sweep.images else "all images"
    yield "Evaluated on", f"the {samples.scored_part(sweep.split)}, {images} of each task"
    yield "Seed", str(sweep.seed)
    yield "Points", f"{len(points)} of {results.total}"
    devices = {point.device for point in points}
    versions = {_versions_in_words(point.versions.items()) for point in points if point.versions}
    if devices:
        yield "Computed", f"on {page_text.join_words(sorted(devices))}"
    if versions:
        yield "Versions", "; ".join(sorted(versions))


def portable_recipe(recipe_yaml: str) -> str:
    """The recipe or sweep with its checkpoints named as on an exported model's card; digests distinguish them."""
    from merging.models import model_references  # loads torch, which Home does not need

    if not recipe_yaml:
        return ""
    try:
        data = read_plain_yaml(recipe_yaml)
    except MergingError:
        return ""
    for recipe in [data, *data.get("recipes", [])]:
        if "pretrained" in recipe:
            experts = flatten_experts(recipe.get("experts", {}))
            recipe["pretrained"], labels = model_references.checkpoint_labels(recipe["pretrained"], experts)
            recipe["experts"] = nest_experts(labels)
    return write_yaml(data)


def program_versions() -> list[tuple[str, str]]:
    """Names and versions of the programs that write the report."""
    import merging

    programs = [("Mergescope", merging.__version__), ("Python", platform.python_version())]
    return programs + [(name, importlib.metadata.version(name)) for name in ("plotly", "streamlit")]


def finish_report() -> Report:
    """The current report of this session."""
    return report_keeper.current_report().report(program_versions())


def private_words() -> PrivateNames:
    """Folders and names of this machine, which must not be in a report, without the words that the user allowed."""
    from viz.report.private_names import find_private_names

    folders = (str(settings.store_root()), str(settings.benchmark_folder()), str(session_benchmark.benchmark_folder()))
    return find_private_names(folders).without_names(report_keeper.current_report().allowed)


def _versions_in_words(pairs: Any) -> str:
    return ", ".join(f"{name} {version}" for name, version in pairs)

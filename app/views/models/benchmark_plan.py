"""The plan of a benchmark: the facts recognized in each data set, and the costs of making the benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from app import page_text
from app.permissions import requires
from app.reading import page_data
from app.widgets import page_parts
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction
from merging.base.text import first_few, size_text
from merging.models.model_references import locate
from viz.figure_text import clean_text, plural

PART_ORDER = ("train", "validation", "test", "whole")
CACHE_SECONDS = 60.0  # for which facts about data sets are cached


@dataclass(frozen=True)
class PlanSummary:
    """The table's rows, one for each task; total numbers of images, prompts and bytes; and cautions."""

    rows: list[dict[str, Any]]
    images: int
    prompts: int
    nbytes: int
    cautions: list[str]


@dataclass(frozen=True)
class DataSetFacts:
    """A data set in one ``sentence`` of untrusted plain text with its class names, or the ``problem`` with it.

    ``referable`` is whether single images can be read from its files, so that a benchmark need not store them again.
    """

    sentence: str
    class_names: tuple[str, ...]
    problem: str = ""
    referable: bool = False


def list_configuration_names(reference: str) -> tuple[str, ...]:
    """The names of a data set's configurations; empty if it has none to choose from."""
    return _list_configurations(reference, page_data.file_state(reference))


@st.cache_data(max_entries=page_data.MAX_CACHED, ttl=CACHE_SECONDS, show_spinner=False)
def _list_configurations(
    reference: str,
    state: tuple[int, ...],  # of the files: a part of the cache's key
) -> tuple[str, ...]:
    from merging.images.data_sets.hub_cache import find_snapshot
    from merging.images.data_sets.table_layouts import list_configurations

    try:
        names = list_configurations(find_snapshot(locate(reference)))
    except (MergingError, OSError):
        return ()  # `_inspect_cached` reports the error
    return names if len(names) > 1 else ()


def inspect_data_set(reference: str, configuration: str | None = None) -> DataSetFacts:
    """Facts about a data set, in one of its configurations if it has several."""
    return _inspect_cached(reference, configuration, page_data.file_state(reference))


@st.cache_data(max_entries=page_data.MAX_CACHED, ttl=CACHE_SECONDS, show_spinner="Inspecting the data set …")
def _inspect_cached(reference: str, configuration: str | None, state: tuple[int, ...]) -> DataSetFacts:
    from merging.images.data_sets.data_set_formats import open_data

    try:
        data_set = open_data(locate(reference), configuration=configuration)
        referable = all(data_set.find_reference(part, 0) is not None for part in data_set.parts)
    except (MergingError, OSError) as error:
        return DataSetFacts("", (), str(error))
    counts = ", ".join(f"{part} {len(data_set.parts[part]):,}" for part in PART_ORDER if part in data_set.parts)
    names = data_set.class_names or ()
    classes_in_words = first_few(names, 5) if names else "classes are numbers, so type their names"
    kind = data_set.kind[0].upper() + data_set.kind[1:]
    sentence = f"{kind}; images: {counts}; {data_set.class_count} classes: {classes_in_words}."
    return DataSetFacts(sentence, tuple(names), referable=referable)


def find_prompts(name: str, names: Sequence[str]) -> str | None:
    """The key of the published prompts for a data set of that name, if its classes match."""
    from merging.base.errors import TaskError
    from merging.images.prompt_sets import read_prompts
    from merging.sharing.catalog.data_set_catalog import find_prompt_key

    if not (key := find_prompt_key(name)) or not names:
        return key
    try:
        read_prompts(key).match(names)
    except TaskError:
        return None
    return key


def draw_plan(description: Mapping[str, Any], folder: Path) -> None:
    """Draw the table of tasks, the cautions and the costs of making the benchmark.

    Raises:
        TaskError, CheckpointError: a data set or a model cannot be used.
    """
    from merging.base.files.plain_yaml import write_yaml

    references = [description["pretrained"], description.get("text", "")]
    references += [
        task.get(name, "") for task in description["tasks"].values() for name in ("images", "expert", "head")
    ]
    summary = _summarize_plan(
        write_yaml(dict(description)),
        tuple(page_data.file_state(reference) for reference in references if reference),
        folder,
    )
    st.markdown("**What was recognized**")
    rows = [
        {name: clean_text(value, 200) if isinstance(value, str) else value for name, value in row.items()}
        for row in summary.rows
    ]
    columns = {"Task": st.column_config.TextColumn(pinned=True, width=120)}
    page_parts.draw_table(rows, "What each data set was recognized as", columns)
    for caution in summary.cautions:
        st.caption(f":material/warning: {page_text.safe_text(caution, 400)}")
    heads_note = f"; heads are built from {plural(summary.prompts, 'prompt')}" if summary.prompts else ""
    image_count, size = plural(summary.images, "image"), size_text(summary.nbytes)
    storage = "decoded once; they stay in their files" if description.get("by_reference") else "read and stored"
    st.markdown(
        f":material/timer: Up to **{image_count}** are {storage}, **{size}** on the disk with the models{heads_note}."
    )


@st.cache_data(max_entries=page_data.MAX_CACHED, ttl=CACHE_SECONDS, show_spinner="Inspecting the data sets …")
def _summarize_plan(description_yaml: str, states: tuple[tuple[int, ...], ...], folder: Path) -> PlanSummary:
    from merging.base.files.plain_yaml import read_plain_yaml
    from merging.images.benchmarks.build.benchmark_description import Description
    from merging.images.benchmarks.build.benchmark_plan import check_room, plan_benchmark

    # A plan does not need the text tower's weights.
    plan = plan_benchmark(Description.from_plain(read_plain_yaml(description_yaml), Path.cwd()), tower=False)
    check_room(plan, folder)  # on the disk
    rows, cautions = [], list(plan.models.cautions)
    if not plan.models.trained:
        cautions.append("No data set has an expert, so every merge is out of domain everywhere on this benchmark.")
    for task in plan.tasks:
        rows.append(
            {
                "Task": task.source.key,
                "For merges": "in domain" if task.source.expert else "out of domain",
                "Classes": len(task.classes.names),
                "Class names": first_few(task.classes.names, 4),
                "Source of names": task.classes.origin,
                "Head": "released" if task.head is not None else f"built, {plural(len(task.templates), 'prompt')}",
                "Split": task.split.rule,
            }
        )
        cautions += [f"{task.source.key}: {line}" for line in (*task.data.notes, *task.classes.cautions)]
        cautions += [f"{task.source.key}: {line}" for line in task.split.cautions if task.source.expert]
    return PlanSummary(rows, plan.image_count, plan.prompt_count, plan.nbytes, cautions)


@requires(VisitorAction.COMMAND)
def store_description(path: Path, description: Mapping[str, Any]) -> None:
    """Write a description to the file that the job reads. Raises StoreError if the store is not writable."""
    from merging.base.files.disk import STORE_REMEDY, explain_os_errors
    from merging.base.files.plain_yaml import write_yaml
    from merging.base.files.records import write_text

    with explain_os_errors("The description of the benchmark", STORE_REMEDY):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(path, write_yaml(dict(description)))

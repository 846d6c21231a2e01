"""The form for the user's own benchmark: data sets, their experts, the facts recognized in them, and the job.

The fields make up a description: plain data in a YAML file, from which a job makes the benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.permissions import requires
from app.reading import listed_models as model_files
from app.reading import page_data
from app.session import benchmark_choice, click_errors
from app.session.click_errors import guarded_fragment
from app.views.models import benchmark_options, benchmark_plan
from app.widgets import fit_report
from app.widgets.jobs import refused_action, tray
from merging.base import settings
from merging.base.errors import MergingError, TaskError
from merging.base.files.short_digest import short_digest
from merging.base.modes import VisitorAction
from merging.images.benchmarks import benchmark_folders
from merging.images.benchmarks.manifest import first_damage
from merging.models.model_references import OWN_PREFIX
from viz.figure_text import clean_text

if TYPE_CHECKING:
    from app.views.models.benchmark_plan import DataSetFacts
    from merging.sharing.catalog.data_set_catalog import DataSetLocation
    from merging.sharing.catalog.model_listing import CatalogEntry
    from merging.sharing.catalog.model_set_store import ModelSet
    from merging.tasks.queue.job_records import Job

JOB_KIND, PROBLEM_KEY, TYPED_PATH_KEY = "data", "build_problem", "data_typed"
NO_EXPERT = "no expert (out of domain)"
NAMES_OF_DATA, TYPED_NAMES, PROMPTS_PREFIX, HEAD_PREFIX = "own", "by hand", "prompts:", "head:"
MAX_DATA_SETS = 40  # data sets in a benchmark
NO_DATA_SET = (
    "No data set was found. A data set is a folder with a folder of images for each class (perhaps in parts `train`, "
    "`val` and `test`), an npz with `images` and `labels`, WebDataset tars, or a Hugging Face data set on disk (arrow "
    "or parquet files, or its folder in a cache)."
)
LIMITS_NOTE = "`sample_data/README.md` states which images are sampled, and which data sets are refused."


def read_typed_path() -> str:
    """The typed path, which the field below shows; empty where typing is not allowed."""
    return str(st.session_state.get(TYPED_PATH_KEY, "")).strip() if model_files.is_local() else ""


def draw_form(model_entries: Sequence[CatalogEntry]) -> None:
    """Draw pickers of models and data sets, the facts that were recognized, and the button."""
    st.header("Make a benchmark from your images", anchor=False)
    if refused_action.draw_refusal(VisitorAction.COMMAND):
        return
    _draw_jobs()
    with st.container(border=True):
        _draw_sources()
        data_sets = {location.reference: location for location in model_files.list_data_sets(read_typed_path())}
        try:
            model_sets = page_data.model_sets()
        except TaskError:
            model_sets = {}
        if not model_sets:
            st.info("First make a set under models: a benchmark holds a pretrained model and its experts.")
            return
        if not data_sets:
            st.markdown(NO_DATA_SET)
            return
        models = _pick_models(model_sets)
        references = st.multiselect(
            "Data sets", list(data_sets), format_func=lambda ref: clean_text(data_sets[ref].listed_path, 100),
            key="build_data",
            max_selections=MAX_DATA_SETS, placeholder="Choose folders of images",
        )  # fmt: skip
        if not references:
            st.caption(f"Nothing is computed until you have seen what was recognized. {LIMITS_NOTE}")
            return
        tasks = _edit_tasks([data_sets[reference] for reference in references], models, model_entries)
        name, description = benchmark_options.draw_options(models, tasks, model_entries)
        if tasks:
            _draw_offer(name, description)


def _draw_sources() -> None:
    """Draw the sources of data sets: listed folders, and a typed path if only this machine's user can reach the app."""
    folder_names = [f"**{page_text.safe_text(name)}**" for name in settings.models_folders()]
    if folder_names:
        st.markdown(f":material/folder_open: Data sets in {page_text.join_words(folder_names)} are listed.")
    if not model_files.is_local():
        return
    st.text_input(
        "Folder of your data sets", key=TYPED_PATH_KEY, max_chars=1000, placeholder="/home/me/data",
        help="Folders in MERGESCOPE_MODELS are always listed.",
    )  # fmt: skip


def _pick_models(model_sets: Mapping[str, ModelSet]) -> ModelSet:
    set_key = st.selectbox(
        "Models", list(model_sets), format_func=lambda key: clean_text(model_sets[key].title, 60), key="build_models",
        help="The pretrained model and the experts that are copied into the benchmark. Sets are made under models.",
    )  # fmt: skip
    return model_sets[set_key]


def _edit_tasks(
    data_sets: Sequence[DataSetLocation], models: ModelSet, model_entries: Sequence[CatalogEntry]
) -> dict[str, dict[str, Any]]:
    """Draw the fields of each data set; returns {task name: the task's part of the description}."""
    from merging.sharing.catalog import data_set_catalog

    tasks: dict[str, dict[str, Any]] = {}
    for location in data_sets:
        key = short_digest(location.reference)
        with st.container(border=True, gap="small"):
            st.markdown(f":material/photo_library: **{page_text.safe_text(location.listed_path, 120)}**")
            configuration = _pick_configuration(key, location.reference)
            facts = benchmark_plan.inspect_data_set(location.reference, configuration)
            if facts.problem:
                st.error(page_text.safe_text(facts.problem, 600), icon=":material/block:")
                continue
            st.caption(page_text.safe_text(facts.sentence, 400))
            with st.grid(3, min_column_width=170):
                name = st.text_input(
                    "Task", data_set_catalog.choose_task_key(location.name, tasks), max_chars=40, key=f"task_{key}",
                    help="Small letters, digits, - and _.",
                ).strip()  # fmt: skip
                expert = _pick_expert(key, location.name, models)
                names = _pick_class_names(key, location.name, facts, model_entries)
            task = {"images": location.reference, "expert": expert, "configuration": configuration, **names}
            if "classes" in names:
                task["classes"] = _edit_class_names(key)
        if name in tasks:
            st.error(f"Two data sets have the name {page_text.safe_text(name)}; rename one.")
        tasks[name] = {option: value for option, value in task.items() if value}
    return tasks


def _pick_configuration(key: str, reference: str) -> str | None:
    """The chosen configuration of a data set; None, and no picker, unless it has several."""
    names = benchmark_plan.list_configuration_names(reference)
    if not names:
        return None
    return st.selectbox(
        "Configuration", names, format_func=lambda name: clean_text(name, 60), key=f"configuration_{key}", width=260,
        help="This data set holds several; each has its own images or labels.",
    )  # fmt: skip


def _pick_expert(key: str, name: str, models: ModelSet) -> str | None:
    """The reference of the chosen expert of a data set; the one with a similar name is proposed."""
    from merging.sharing.catalog.data_set_catalog import find_alike

    experts = dict(models.experts)
    similar = find_alike(name, experts)
    expert_name = st.selectbox(
        "Its expert", [NO_EXPERT, *experts], 1 + list(experts).index(similar) if similar else 0,
        format_func=lambda expert: clean_text(expert, 60), key=f"expert_{models.id}_{key}",
    )  # fmt: skip
    return experts.get(expert_name)


def _edit_class_names(key: str) -> list[str]:
    """Class names that the user types, one on each line."""
    text = st.text_area(
        "Class names, one per line, in the order of the labels", key=f"classes_{key}", height=120, max_chars=100_000
    )
    return [line.strip() for line in text.splitlines() if line.strip()]


def _pick_class_names(
    key: str, name: str, facts: DataSetFacts, model_entries: Sequence[CatalogEntry]
) -> dict[str, str]:
    """Draw a picker of the source of a task's class names: the data, published or typed names, or a released head.

    Returns the picked source as fields of the description.
    """
    from merging.images.prompt_sets import list_prompt_keys, read_prompts
    from merging.sharing.catalog.data_set_catalog import find_alike
    from merging.sharing.catalog.model_groups import HEAD_NAME

    head_entries = {f"{HEAD_PREFIX}{item.reference}": item for item in model_entries if HEAD_NAME.fullmatch(item.name)}
    published_options = [f"{PROMPTS_PREFIX}{key}" for key in list_prompt_keys()]
    options = [*([NAMES_OF_DATA] if facts.class_names else []), TYPED_NAMES, *head_entries, *published_options]
    heads_by_name = {item.name[5:]: option for option, item in head_entries.items()}  # without "head_"
    released_name, prompts_key = find_alike(name, heads_by_name), benchmark_plan.find_prompts(name, facts.class_names)
    default = f"{PROMPTS_PREFIX}{prompts_key}" if prompts_key else options[0]
    default = heads_by_name[released_name] if released_name else default

    def label(option: str) -> str:
        if option in head_entries:
            return f"released {clean_text(head_entries[option].name, 40)}"
        if option.startswith(PROMPTS_PREFIX):
            return f"names of {read_prompts(option.removeprefix(PROMPTS_PREFIX)).title}"
        return "the data's own names" if option == NAMES_OF_DATA else "typed by hand"

    source = st.selectbox("Class names", options, options.index(default), format_func=label, key=f"names_{key}")
    if source in head_entries:  # its rows are in the order of the published names, if there are any
        return {"head": head_entries[source].reference} | ({"prompts": prompts_key} if prompts_key else {})
    if source == TYPED_NAMES:
        return {"classes": ""}  # the caller fills in the typed names
    return {} if source == NAMES_OF_DATA else _pick_wording(key, source.removeprefix(PROMPTS_PREFIX))


def _pick_wording(key: str, prompts_key: str) -> dict[str, str]:
    """Published prompts, with a picker of their wording if the Hub writes the class names differently."""
    from merging.images.prompt_sets import CLIP, HUB, read_prompts

    wordings = read_prompts(prompts_key).wordings
    if wordings.get(HUB, wordings[CLIP]) == wordings[CLIP]:
        return {"prompts": prompts_key}
    wording_labels = {CLIP: "as CLIP’s authors write them", HUB: "as the Hub writes them"}
    wording = st.selectbox(
        "Wording", list(wording_labels), format_func=wording_labels.__getitem__, key=f"wording_{key}",
        help="Class names of this data set differ between sources, and scores with them.",
    )  # fmt: skip
    return {"prompts": prompts_key} | ({"wording": wording} if wording != CLIP else {})


def _draw_offer(name: str, description: Mapping[str, Any]) -> None:
    """Draw the recognized facts, the costs of making the benchmark, and the button."""
    folder = benchmark_folders.own_folder(name, page_data.store().root)
    try:
        if not benchmark_folders.NAME.fullmatch(name):
            raise TaskError("The name of a benchmark consists of lowercase letters, digits, - and _.")
        if folder.exists():
            st.info(f"A benchmark named {name} exists already; choose another name.")
            return
        benchmark_plan.draw_plan(description, folder)
    except (MergingError, OSError) as error:
        st.error(page_text.safe_text(error, 1200), icon=":material/block:")
        return
    evaluate = st.checkbox(
        "Evaluate the pretrained model and every expert, too", True, key="build_evaluate",
        help="Charts then show them as bounds, and accuracies relative to the experts'.",
    )  # fmt: skip
    st.button(
        "Make the benchmark", type="primary", icon=":material/dataset:", key="build_start", on_click=_start_benchmark,
        args=(name, dict(description), evaluate),
    )  # fmt: skip
    if problem := st.session_state.pop(PROBLEM_KEY, ""):
        st.error(page_text.safe_text(problem, 600), icon=":material/error:")


@click_errors.guard_callback
@requires(VisitorAction.COMMAND)
def _start_benchmark(name: str, description: Mapping[str, Any], evaluate: bool) -> None:
    """Callback: write the description and queue the job."""
    folder = benchmark_folders.own_folder(name, page_data.store().root)
    description_path = folder.with_name(f"{name}.yaml")
    try:
        benchmark_plan.store_description(description_path, description)
        _queue_job(name, folder, description_path, evaluate)
    except (MergingError, OSError) as error:
        st.session_state[PROBLEM_KEY] = str(error)


def draw_make_again() -> None:
    """Draw a button that makes this session's benchmark again, if it is the user's own and is damaged."""
    path = benchmark_choice.benchmark_folder()
    description_path = path.with_name(f"{path.name}.yaml")
    if (
        not benchmark_choice.current_key().startswith(OWN_PREFIX)
        or not description_path.is_file()
        or not model_files.is_local()
    ):
        return
    with st.spinner("Checking the benchmark's files …"):
        damage = first_damage(path)
    if damage:
        st.caption(f":material/healing: {page_text.safe_text(damage, 400)}")
        st.button(
            "Move it out and make it again", key="build_again", icon=":material/replay:", on_click=_replace_damaged,
            args=(path, damage),
        )  # fmt: skip


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _replace_damaged(path: Path, reason: str) -> None:
    """Callback: move the damaged benchmark out of the store, switch to the server's, and queue the job."""
    description_path, is_evaluated = path.with_name(f"{path.name}.yaml"), (path / "runs").is_dir()
    benchmark_choice.switch_benchmark(benchmark_folders.SERVER)
    page_data.store().damaged.move_damaged(path, "benchmark", reason)
    _queue_job(path.name, path, description_path, is_evaluated)


def _queue_job(name: str, folder: Path, description_path: Path, evaluate: bool) -> None:
    command_words = ["benchmark", "make", str(folder.absolute()), "--from", str(description_path.absolute())]
    command_words += [*(["--evaluate"] if evaluate else []), "--device", page_data.job_queue().device]
    page_data.job_queue().command(JOB_KIND, make_job_subject(name), f"Making the benchmark {name}", command_words)


def make_job_subject(name: str) -> str:
    """The subject of the job that makes a benchmark."""
    return fit_report.job_subject(name, {})  # in place of a pretrained model and its experts


def _draw_jobs() -> None:
    """Draw the benchmarks in progress, and a button that switches to a finished one."""
    is_any_live = any(job.is_live for job in _list_jobs())
    guarded_fragment(_draw_jobs_now, run_every=tray.POLL_SECONDS if is_any_live else None)()


def _list_jobs() -> list[Job]:
    return [job for job in page_data.job_queue().list_jobs() if job.kind == JOB_KIND]


def _draw_jobs_now() -> None:
    benchmarks_by_subject = {
        make_job_subject(path.name): (key, path)
        for key, path in benchmark_folders.list_built(page_data.store().root).items()
    }
    for job in _list_jobs():
        key, path = benchmarks_by_subject.get(job.subject, ("", None))
        if job.is_live or job.error:
            tray.draw_job(job, "build")
        elif path is not None and key != benchmark_choice.current_key():
            with st.container(border=True, horizontal=True, vertical_alignment="center"):
                st.markdown(f":material/check_circle: The benchmark **{page_text.safe_text(path.name)}** is ready.")
                if st.button("Switch to it", key=f"use_{job.id}", type="primary"):
                    benchmark_choice.switch_benchmark(key)
                    st.rerun()  # the whole page, not this fragment of it

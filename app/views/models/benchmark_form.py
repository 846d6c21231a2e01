"""The form for the user's own benchmark: data sets, their experts, the facts recognized in them, and the job."""

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

BUILD, PROBLEM, TYPED = "data", "build_problem", "data_typed"
NONE = "none: out of domain"
OWN_NAMES, BY_HAND, PROMPTS_PREFIX, HEAD_PREFIX = "own", "by hand", "prompts:", "head:"
MOST = 40  # data sets in a benchmark
NOTHING = (
    "No data set was found. One is a folder with a folder of images for each class (perhaps in parts `train`, `val` "
    "and `test`), an npz with `images` and `labels`, WebDataset tars, or a Hugging Face data set on disk (arrow or "
    "parquet files, or its folder in a cache)."
)
LEARN = "`sample_data/README.md` states which images are sampled, and which data sets are refused."


def typed_path() -> str:
    """The typed path, which the field below shows; empty where typing is not allowed."""
    return str(st.session_state.get(TYPED, "")).strip() if model_files.is_local() else ""


def draw_form(listed: Sequence[CatalogEntry]) -> None:
    """Pickers of models and data sets, what was recognized, and the button."""
    st.header("Make a benchmark from your images", anchor=False)
    if refused_action.draw_refusal(VisitorAction.COMMAND):
        return
    _draw_jobs()
    with st.container(border=True):
        _draw_sources()
        data_sets = {location.reference: location for location in model_files.list_data_sets(typed_path())}
        try:
            sets = page_data.model_sets()
        except TaskError:
            sets = {}
        if not sets:
            st.info("First make a set under models: a benchmark holds a pretrained model and its experts.")
            return
        if not data_sets:
            st.markdown(NOTHING)
            return
        models = _models(sets)
        chosen = st.multiselect(
            "Data sets", list(data_sets), format_func=lambda ref: clean_text(data_sets[ref].listed_path, 100),
            key="build_data",
            max_selections=MOST, placeholder="Choose folders of images",
        )  # fmt: skip
        if not chosen:
            st.caption(f"Nothing is computed until you have seen what was recognized. {LEARN}")
            return
        tasks = _tasks([data_sets[reference] for reference in chosen], models, listed)
        name, plain = benchmark_options.draw_options(models, tasks, listed)
        if tasks:
            _draw_offer(name, plain)


def _draw_sources() -> None:
    """Draw the sources of data sets: listed folders, and a typed path if only this machine's user can reach the app."""
    folder_names = [f"**{page_text.safe_text(name)}**" for name in settings.models_folders()]
    if folder_names:
        st.markdown(f":material/folder_open: Data sets in {page_text.join_words(folder_names)} are listed.")
    if not model_files.is_local():
        return
    st.text_input(
        "Folder of your data sets", key=TYPED, max_chars=1000, placeholder="/home/me/data",
        help="Folders in MERGESCOPE_MODELS are always listed.",
    )  # fmt: skip


def _models(sets: Mapping[str, ModelSet]) -> ModelSet:
    picked = st.selectbox(
        "Models", list(sets), format_func=lambda key: clean_text(sets[key].title, 60), key="build_models",
        help="The pretrained model and the experts that are copied into the benchmark. Sets are made under models.",
    )  # fmt: skip
    return sets[picked]


def _tasks(
    data_sets: Sequence[DataSetLocation], models: ModelSet, listed: Sequence[CatalogEntry]
) -> dict[str, dict[str, Any]]:
    """The fields of each data set in the description by task name, as chosen or proposed in the form."""
    from merging.sharing.catalog import data_set_catalog

    tasks: dict[str, dict[str, Any]] = {}
    for location in data_sets:
        key = short_digest(location.reference)
        with st.container(border=True, gap="small"):
            st.markdown(f":material/photo_library: **{page_text.safe_text(location.listed_path, 120)}**")
            configuration = _configuration(key, location.reference)
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
                expert = _expert(key, location.name, models)
                names = _names(key, location.name, facts, listed)
            task = {"images": location.reference, "expert": expert, "configuration": configuration, **names}
            if "classes" in names:
                task["classes"] = _typed_names(key)
        if name in tasks:
            st.error(f"Two data sets have the name {page_text.safe_text(name)}; rename one.")
        tasks[name] = {option: value for option, value in task.items() if value}
    return tasks


def _configuration(key: str, reference: str) -> str | None:
    """The chosen configuration of a data set; None, and no picker, unless it has several."""
    names = benchmark_plan.configuration_names(reference)
    if not names:
        return None
    return st.selectbox(
        "Configuration", names, format_func=lambda one: clean_text(one, 60), key=f"configuration_{key}", width=260,
        help="This data set holds several; each has its own images or labels.",
    )  # fmt: skip


def _expert(key: str, name: str, models: ModelSet) -> str | None:
    """The reference of the chosen expert of a data set; the one with a similar name is proposed."""
    from merging.sharing.catalog.data_set_catalog import find_alike

    experts = dict(models.experts)
    similar = find_alike(name, experts)
    picked = st.selectbox(
        "Its expert", [NONE, *experts], 1 + list(experts).index(similar) if similar else 0,
        format_func=lambda expert: clean_text(expert, 60), key=f"expert_{models.id}_{key}",
    )  # fmt: skip
    return experts.get(picked)


def _typed_names(key: str) -> list[str]:
    """Class names that the user types, one on each line."""
    typed = st.text_area(
        "Class names, one per line, in the order of the labels", key=f"classes_{key}", height=120, max_chars=100_000
    )
    return [line.strip() for line in typed.splitlines() if line.strip()]


def _names(key: str, name: str, facts: DataSetFacts, listed: Sequence[CatalogEntry]) -> dict[str, str]:
    """The source of a task's head: class names of the data, published or typed ones, or a released head."""
    from merging.images.prompt_sets import prompt_keys, prompts
    from merging.sharing.catalog.data_set_catalog import find_alike
    from merging.sharing.catalog.model_groups import HEAD_NAME

    heads = {f"{HEAD_PREFIX}{item.reference}": item for item in listed if HEAD_NAME.fullmatch(item.name)}
    named = [f"{PROMPTS_PREFIX}{key}" for key in prompt_keys()]
    options = [*([OWN_NAMES] if facts.class_names else []), BY_HAND, *heads, *named]
    of_name = {item.name[5:]: one for one, item in heads.items()}  # without "head_"
    released, of_papers = find_alike(name, of_name), benchmark_plan.find_prompts(name, facts.class_names)
    first = of_name[released] if released else f"{PROMPTS_PREFIX}{of_papers}" if of_papers else options[0]

    def label(option: str) -> str:
        if option in heads:
            return f"released {clean_text(heads[option].name, 40)}"
        if option.startswith(PROMPTS_PREFIX):
            return f"names of {prompts(option.removeprefix(PROMPTS_PREFIX)).title}"
        return "the data's own names" if option == OWN_NAMES else "typed by hand"

    picked = st.selectbox("Class names", options, options.index(first), format_func=label, key=f"names_{key}")
    if picked in heads:  # its rows are in the order of the published names, if there are any
        return {"head": heads[picked].reference} | ({"prompts": of_papers} if of_papers else {})
    if picked == BY_HAND:
        return {"classes": ""}
    return {} if picked == OWN_NAMES else _published_prompts(key, picked.removeprefix(PROMPTS_PREFIX))


def _published_prompts(key: str, prompts_key: str) -> dict[str, str]:
    """Published prompts, with a picker of their wording if the Hub writes the class names differently."""
    from merging.images.prompt_sets import CLIP, HUB, prompts

    known = prompts(prompts_key).wordings
    if known.get(HUB, known[CLIP]) == known[CLIP]:
        return {"prompts": prompts_key}
    words = {CLIP: "as CLIP’s authors write them", HUB: "as the Hub writes them"}
    picked = st.selectbox(
        "Wording", list(words), format_func=words.__getitem__, key=f"wording_{key}",
        help="Class names of this data set differ between sources, and scores with them.",
    )  # fmt: skip
    return {"prompts": prompts_key} | ({"wording": picked} if picked != CLIP else {})


def _draw_offer(name: str, plain: Mapping[str, Any]) -> None:
    """Draw the recognized facts, the costs of making the benchmark, and the button."""
    out = benchmark_folders.own_folder(name, page_data.store().root)
    try:
        if not benchmark_folders.NAME.fullmatch(name):
            raise TaskError("The name of a benchmark consists of small letters, digits, - and _.")
        if out.exists():
            st.info(f"A benchmark named {name} exists already; choose another name.")
            return
        benchmark_plan.draw_plan(plain, out)
    except (MergingError, OSError) as error:
        st.error(page_text.safe_text(error, 1200), icon=":material/block:")
        return
    evaluate = st.checkbox(
        "Evaluate the pretrained model and every expert, too", True, key="build_evaluate",
        help="Charts then show them as bounds, and accuracies relative to the experts'.",
    )  # fmt: skip
    st.button(
        "Make the benchmark", type="primary", icon=":material/dataset:", key="build_start", on_click=_start,
        args=(name, dict(plain), evaluate),
    )  # fmt: skip
    if problem := st.session_state.pop(PROBLEM, ""):
        st.error(page_text.safe_text(problem, 600), icon=":material/error:")


@click_errors.guard_callback
@requires(VisitorAction.COMMAND)
def _start(name: str, plain: Mapping[str, Any], evaluate: bool) -> None:
    """Callback: write the description and queue the job."""
    out = benchmark_folders.own_folder(name, page_data.store().root)
    described = out.with_name(f"{name}.yaml")
    try:
        benchmark_plan.store_description(described, plain)
        _queue(name, out, described, evaluate)
    except (MergingError, OSError) as error:
        st.session_state[PROBLEM] = str(error)


def draw_make_again() -> None:
    """Draw a button that makes this session's benchmark again, if it is the user's own and is damaged."""
    path = benchmark_choice.benchmark_folder()
    described = path.with_name(f"{path.name}.yaml")
    if (
        not benchmark_choice.current_key().startswith(OWN_PREFIX)
        or not described.is_file()
        or not model_files.is_local()
    ):
        return
    with st.spinner("Checking the benchmark's files …"):
        damage = first_damage(path)
    if damage:
        st.caption(f":material/healing: {page_text.safe_text(damage, 400)}")
        st.button(
            "Move it out and make it again", key="build_again", icon=":material/replay:", on_click=_make_again,
            args=(path, damage),
        )  # fmt: skip


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _make_again(path: Path, reason: str) -> None:
    """Callback: move the damaged benchmark out of the store, switch to the server's, and queue the job."""
    described, library = path.with_name(f"{path.name}.yaml"), (path / "runs").is_dir()
    benchmark_choice.switch_benchmark(benchmark_folders.SERVER)
    page_data.store().damaged.move_damaged(path, "benchmark", reason)
    _queue(path.name, path, described, library)


def _queue(name: str, out: Path, described: Path, evaluate: bool) -> None:
    words = ["benchmark", "make", str(out.absolute()), "--from", str(described.absolute())]
    words += [*(["--evaluate"] if evaluate else []), "--device", page_data.job_queue().device]
    page_data.job_queue().command(BUILD, job_subject(name), f"Making the benchmark {name}", words)


def job_subject(name: str) -> str:
    """The subject of the job that makes a benchmark."""
    return fit_report.job_subject(name, {})


def _draw_jobs() -> None:
    """Benchmarks in progress, and a button that switches to a finished one."""
    live = any(job.is_live for job in _build_jobs())
    guarded_fragment(_show_jobs, run_every=tray.POLL if live else None)()


def _build_jobs() -> list[Job]:
    return [job for job in page_data.job_queue().list_jobs() if job.kind == BUILD]


def _show_jobs() -> None:
    built = {
        job_subject(path.name): (key, path)
        for key, path in benchmark_folders.list_built(page_data.store().root).items()
    }
    for job in _build_jobs():
        key, path = built.get(job.subject, ("", None))
        if job.is_live or job.error:
            tray.draw_job(job, "build")
        elif path is not None and key != benchmark_choice.current_key():
            with st.container(border=True, horizontal=True, vertical_alignment="center"):
                st.markdown(f":material/check_circle: The benchmark **{page_text.safe_text(path.name)}** is ready.")
                if st.button("Switch to it", key=f"use_{job.id}", type="primary"):
                    benchmark_choice.switch_benchmark(key)
                    st.rerun()  # the whole page, not this fragment of it

"""Choosing a pretrained model and experts, seeing at once whether they fit, and offering them on the Merge page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import text
from app.reading import data, models
from app.reading.models import Shelf
from app.session import benchmark, pages
from app.views.models import benchmarks
from app.widgets import fit_report, page
from merging.errors import MergingError
from merging.text import first_few
from viz.text import clean_text, plural

if TYPE_CHECKING:
    from merging.catalog.groups import ModelGroup
    from merging.catalog.recognize import ModelFacts
    from merging.catalog.scan import CatalogEntry

GROUP, PROBLEM, MADE = "set_group", "set_problem", "set_made"
NAMED_HELP = (
    "Names are shown in charts; experts that are called like the benchmark's tasks are scored in domain on them."
)
NO_SCORES = (
    "What is merged from these models is **not evaluated** here: {} Merging, masks, conflicts and export work all the "
    "same. For scores, make a benchmark from images of yours: on Models & runs, under **data**, or so:"
)
MAKE = "python -m merging benchmark make mine --pretrained PRETRAINED --task cars=DATA,prompts=cars,expert=CARS"


def chooser(found: Shelf, groups: Sequence[ModelGroup]) -> None:
    """The form: what belongs together, what is pretrained, what the experts are called, whether it fits."""
    st.subheader("Use these for a merge", anchor=False)
    if made := st.session_state.pop(MADE, None):
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            st.markdown(f":material/check_circle: **{text.safe_text(made[0])}** is offered on the Merge page.")
            page.open_page(pages.MERGE, "Open in Merge", "merge", models=made[1])
    usable = {item.reference: item for item, look in found.readable if _usable(look)}
    if not any(not models.is_bundled(item) for item in usable.values()):
        st.info("No model of yours is listed yet. List a folder above, and choose here which models belong together.")
        return
    group = _group(groups)
    prefix = f"set_{_subject(group)}"
    names = {reference: clean_text(item.place, 100) for reference, item in usable.items()}
    chosen = _models(prefix, group, names)
    if chosen is None:
        return
    pretrained, references = chosen
    experts = _named(prefix, group, references, {ref: item.place for ref, item in usable.items()})
    try:
        fits = fit_report.show(pretrained, experts, "shelf")
        evaluation(pretrained, experts)
    except MergingError as error:
        st.error(text.safe_text(error, 800), icon=":material/block:")
        return
    _keep(prefix, group, pretrained, experts, fits)


def _usable(look: ModelFacts) -> bool:
    """Whether something can be merged at all."""
    return look.kind == "adapter" or (look.kind == "model" and not look.problem)


def _subject(group: ModelGroup | None) -> str:
    """A name for the form's fields, so that each group has its own."""
    if group is None:
        return "own"
    below = group.pretrained.reference if group.pretrained else ""
    return fit_report.subject_of(below, {name: item.reference for name, item in group.experts.items()})


def _group(groups: Sequence[ModelGroup]) -> ModelGroup | None:
    """What the form begins with."""
    if not groups:
        return None
    picked = st.selectbox(
        "Models that belong together",
        [*range(len(groups)), -1],
        format_func=lambda number: _title(groups[number]) if number >= 0 else "A choice of my own",
        key=GROUP,
    )
    if picked < 0:
        return None
    group = groups[picked]
    said = [f"{group.layout}; {plural(len(group.experts), 'expert')}"]
    said += [f"{plural(len(group.heads), 'zero-shot head')} for a benchmark"] if group.heads else []
    if group.guessed:
        said.append("the pretrained model was told by its numbers: it is the nearest to all of them")
    if group.apart:
        names = text.listed([clean_text(name, 40) for name in group.apart[:5]])
        said.append(f"left out, because they look trained from another model: {names}")
    st.caption(text.safe_text(f"{'. '.join(one[0].upper() + one[1:] for one in said)}.", 500))
    return group


def _title(group: ModelGroup) -> str:
    return f"{clean_text(group.title, 60)}  ·  {plural(len(group.experts), 'expert')}"


def _models(prefix: str, group: ModelGroup | None, names: Mapping[str, str]) -> tuple[str, list[str]] | None:
    """Pickers for the pretrained model and for the experts; None until both are chosen."""
    references = list(names)
    first = references.index(group.pretrained.reference) if group and group.pretrained else None
    pretrained = st.selectbox(
        "Pretrained model", references, first, format_func=names.__getitem__, key=f"{prefix}_pretrained",
        placeholder="Choose the model that the experts were trained from",
    )  # fmt: skip
    experts = st.multiselect(
        "Experts", references, [item.reference for item in group.experts.values()] if group else [],
        format_func=names.__getitem__, key=f"{prefix}_experts", placeholder="Choose at least one expert",
    )  # fmt: skip
    if pretrained is None or not experts:
        st.caption("Choose a pretrained model and experts; whether they fit is then told here.")
        return None
    return pretrained, experts


def _named(prefix: str, group: ModelGroup | None, references: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """{name: reference} of the experts, under names that can be edited."""
    from merging.catalog.model_sets import LONGEST, free_name, usable_name

    given = {item.reference: name for name, item in group.experts.items()} if group else {}
    found: dict[str, str] = {}
    with st.expander("What the experts are called", icon=":material/label:"):
        st.caption(NAMED_HELP)
        with st.grid(3, min_column_width=170):
            for reference in references:
                name = usable_name(given.get(reference) or _last(own[reference]))
                typed = st.text_input(
                    clean_text("/".join(own[reference].split("/")[-2:]), 50),
                    name,
                    max_chars=LONGEST,
                    key=f"{prefix}_name_{reference}",
                )
                found[free_name(typed.strip() or name, found)] = reference
    return found


def _last(place: str) -> str:
    """What an expert is called if nothing else is known: its file, or its folder where files are called alike."""
    *folders, last = place.split("/")
    stem, dot, _ = last.rpartition(".")
    stem = stem if dot else last
    return folders[-1] if folders and stem in {"model", "finetuned", "checkpoint", "adapter_model"} else stem


def evaluation(pretrained: str, experts: Mapping[str, str]) -> None:
    """Says if what is merged cannot be evaluated, why, and what to do; or that no task belongs to these experts."""
    if reason := data.not_evaluated(pretrained):
        st.markdown(f":material/info: {NO_SCORES.format(text.safe_text(reason, 300))}")
        st.code(MAKE, language=None, wrap_lines=True)
    elif not set(experts) & set(known := data.benchmark().experts):
        named = text.safe_text(first_few(known), 300)
        st.markdown(
            ":material/info: None of these experts is called like a task of the benchmark, so all its data sets count "
            f"as out of domain. Its tasks are {named}."
        )


def _keep(prefix: str, group: ModelGroup | None, pretrained: str, experts: Mapping[str, str], fits: bool) -> None:
    """The title, and the button that offers the set on the Merge page."""
    from merging.catalog.model_sets import LONGEST, usable_name

    with st.container(horizontal=True, vertical_alignment="bottom"):
        begin = usable_name(group.title) if group else "My models"
        title = st.text_input("Title of the set", begin, max_chars=LONGEST, key=f"{prefix}_title", width=320)
        st.button(
            "Offer on the Merge page", type="primary", icon=":material/playlist_add:", key="keep_set",
            on_click=_save, args=(title, pretrained, dict(experts)), disabled=not fits,
        )  # fmt: skip
    if problem := st.session_state.pop(PROBLEM, ""):
        st.error(text.safe_text(problem, 400), icon=":material/error:")


def _save(title: str, pretrained: str, experts: Mapping[str, str]) -> None:
    """Callback: keep the set."""
    from merging.catalog.model_sets import all_sets, free_name, keep, make

    root = data.store().root
    try:
        made = make(title, pretrained, experts)
        taken = [other.title for other in all_sets(root) if other.id != made.id]
        made = make(free_name(made.title, taken), pretrained, experts)
        keep(root, made)
    except MergingError as error:
        st.session_state[PROBLEM] = str(error)
    else:
        st.session_state[MADE] = made.title, made.id


def saved() -> None:
    """The sets that the Merge page offers."""
    from merging.catalog.model_sets import all_sets

    if not (sets := all_sets(data.store().root)):
        return
    st.subheader("Sets on the Merge page", anchor=False)
    for made in sets:
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            names = text.listed([clean_text(name, 30) for name, _ in made.experts[:6]])
            more = f" and {len(made.experts) - 6} more" if len(made.experts) > 6 else ""
            st.markdown(f"**{text.safe_text(made.title)}**  \n:small[:gray[{text.safe_text(names + more, 300)}]]")
            page.open_page(pages.MERGE, "Open in Merge", "merge", models=made.id)
            if models.local():
                st.button(
                    "Forget", key=f"forget_{made.id}", type="tertiary", on_click=_forget, args=(made.id,),
                    help="The set is no longer offered. Its files stay where they are, and so do its runs.",
                )  # fmt: skip


def _forget(set_id: str) -> None:
    """Callback: no longer offer a set."""
    from merging.catalog.model_sets import forget

    forget(data.store().root, set_id)


def folders(found: Shelf) -> None:
    """Benchmark folders among what is listed, and a way to work on one."""
    for item in found.benchmarks:
        if item.path.resolve() == benchmark.folder():
            continue
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f":material/dataset: **{text.safe_text(item.place, 100)}** is a benchmark folder.")
            st.button(
                "Measure everything on it", key=f"use_{item.key}", type="tertiary", on_click=_work_on, args=(item,)
            )


def _work_on(item: CatalogEntry) -> None:
    """Callback: work on a benchmark folder that is listed."""
    benchmark.use(benchmarks.key(item))

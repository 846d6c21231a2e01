"""Pickers of runs, and the texts of a page about a chosen run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import streamlit as st

from app import page_text
from app.reading import expert_names, page_data
from app.reading.runs import run_names
from app.session import address, run_choice, view_state
from app.session.pages import MASKS, MODELS
from app.widgets.page_parts import draw_no_runs, draw_page_link
from merging.base.files.short_digest import match_prefix
from merging.base.text import duration_text, first_few
from merging.study.runs.run import PRECOMPUTED, THIS_MACHINE, Run, have_same_models
from viz.figure_text import plural

OTHER_EXPERTS_NOTE = (
    "{} of the chosen runs {} other experts. Their averages are over other tasks, so they are not in the same picture."
)
CLIP_ONLY_NOTE = "This page passes images through CLIP towers; Masks, Conflicts and Compare show runs of any network."
OTHER_NETWORK_NOTE = "**{title}** is of {network}. " + CLIP_ONLY_NOTE
RUN_GONE_NOTE = "The chosen run is no longer available."
RUNS_GONE_NOTE = "Some of the chosen runs are no longer available."
MAX_MATCHES = 20  # runs to choose from
MAX_CAUTIONS = 6  # cautions that are shown


def pick_one(runs: Sequence[Run], label: str = "Layers of", ready: Sequence[Run] = ()) -> Run:
    """Draw a picker of one of several runs, and return the picked one.

    ``ready`` are the runs whose results for this page are stored, by default all. If no run is chosen, the last ready
    one is picked.
    """
    by_id = {run.id: run for run in runs}
    run_id = run_choice.resolve_focused_run(list(by_id), [run.id for run in ready or runs])
    _draw_run_picker(label, by_id, run_id, "one", width=480)
    return by_id[run_id]


def _draw_run_picker(
    label: str, by_id: Mapping[str, Run], run_id: str, key: str, width: int | Literal["stretch"]
) -> None:
    labels = run_names.label_runs(list(by_id.values()))
    st.session_state[key] = run_id  # the picker shows the run in the link
    st.selectbox(
        label, _list_in_hand_first(by_id), format_func=labels.__getitem__, key=key,
        on_change=run_choice.pick_run_from,
        args=(key,), width=width,
    )  # fmt: skip


def _list_in_hand_first(by_id: Mapping[str, Run]) -> list[str]:
    """The ids of the runs, those in hand before the others."""
    in_hand = [run_id for run_id in run_choice.runs_in_hand() if run_id in by_id]
    return [*in_hand, *(run_id for run_id in by_id if run_id not in in_hand)]


def draw_runs_picker(
    by_id: Mapping[str, Run],
    chosen: Sequence[str],
    key: str,
    max_runs: int | None = None,
    placeholder: str = "Choose runs to compare",
    width: int | Literal["stretch"] = "stretch",
) -> None:
    """Draw a picker of several runs, at most ``max_runs``, that begins with the first chosen ones.

    Runs in hand that the page cannot show, or not beside so many others, stay in hand.
    """
    labels = run_names.label_runs(list(by_id.values()))
    st.session_state[key] = list(chosen[:max_runs])
    not_offered = [
        run_id for run_id in run_choice.runs_in_hand() if run_id not in by_id and page_data.store().find(run_id)
    ]
    not_offered += chosen[max_runs:] if max_runs else []
    st.multiselect(
        "Runs", _list_in_hand_first(by_id), format_func=labels.__getitem__, key=key,
        on_change=run_choice.pick_runs_from, args=(key, not_offered), max_selections=max_runs, placeholder=placeholder,
        width=width,
    )  # fmt: skip


def pick_run(
    runs: Sequence[Run],
    first: Run | None = None,
    label: str = "Run",
    draw_text: Callable[[Run], None] | None = None,
    ready: Sequence[Run] | None = None,
) -> tuple[Run, bool] | None:
    """Draw a picker and a sentence about the picked run, and return that run; None if there is none to show.

    ``first`` is shown if neither the link nor the session names a run; ``draw_text`` draws the sentence. ``ready`` are
    the runs whose results for this page are stored, by default all; if no run is chosen, one of them is shown.

    The flag is True if the run was picked just now, so that the view starts with that run's own values.
    """
    if not runs:
        if requested := run_choice.resolve_run([], "").missing:
            draw_missing_runs([requested])
        else:
            draw_no_runs()
        return None
    by_id = {run.id: run for run in runs}
    ready_ids = None if ready is None else [run.id for run in ready]
    picked = run_choice.resolve_run(list(by_id), first.id if first else next(iter(by_id)), ready_ids)
    if picked.missing is not None or picked.run_id is None:
        draw_missing_runs([picked.missing or ""])
        return None
    _draw_run_picker(label, by_id, picked.run_id, "picker", width="stretch")
    run = by_id[picked.run_id]
    (draw_text or draw_run)(run)
    return run, picked.fresh


def group_by_models(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups of runs that merge the same models, whatever their order; the first run's group comes first."""
    groups: list[list[Run]] = []
    for run in runs:
        if group := next((one for one in groups if have_same_models(one[0], run)), None):
            group.append(run)
        else:
            groups.append([run])
    return groups


def draw_other_groups(groups: Sequence[Sequence[Run]]) -> None:
    """List the chosen runs that merge other experts than the first group, with buttons that show them instead."""
    if len(groups) < 2:
        return
    other_count = sum(map(len, groups[1:]))
    with st.container(border=True, gap="xsmall", key="other_experts"):
        note = OTHER_EXPERTS_NOTE.format(f"**{other_count}**", "merge" if other_count > 1 else "merges")
        st.markdown(f":material/group_work: {note}")
        for number, group in enumerate(groups[1:], start=1):
            titles = page_text.safe_text(first_few((run.name for run in group), 4), 300)
            ids = [run.id for run in group] + [run.id for other in groups if other is not group for run in other]
            words, switch = st.columns([3, 1], vertical_alignment="center")
            words.markdown(f"**{page_text.safe_text(expert_names.experts_in_words(group[0].experts), 120)}.** {titles}")
            switch.button(
                "Show these instead", key=f"other_experts_{number}", on_click=run_choice.pick_runs, args=(ids,)
            )


def draw_other_networks_note(runs: Sequence[Run], reason: str = CLIP_ONLY_NOTE) -> None:
    """Report that the page does not offer runs of networks other than CLIP; draws nothing if there are none."""
    if other_runs := [run for run in runs if run.network]:
        networks = page_text.join_words(sorted({page_text.safe_text(run.network, 60) for run in other_runs}))
        verb = "is" if len(other_runs) == 1 else "are"
        st.caption(f"{plural(len(other_runs), 'run')} of {networks} {verb} not offered on this page. {reason}")


def draw_missing_runs(
    run_ids: Sequence[str], forget_runs: Callable[[], None] = run_choice.clear_link,
    other_network_note: str = OTHER_NETWORK_NOTE, offers: str = "",
) -> None:  # fmt: skip
    """Report the chosen runs that cannot be shown, with a button to continue, which calls ``forget_runs``.

    ``other_network_note`` is the sentence about a run of a network other than CLIP. ``offers`` states which runs the
    page shows, if it continues with them: a stored run that is not among them then needs no button.
    """
    run_ids = _offer_choices(run_ids)
    if offers:
        run_ids = _report_not_offered(run_ids, offers)
    if run_ids:
        _report_missing_runs(run_ids, forget_runs, other_network_note)


def _report_not_offered(run_ids: Sequence[str], offers: str) -> list[str]:
    """Report the stored merges of CLIP that the page does not offer; returns the other ids."""
    stored = {run.id: run for run in page_data.clip_runs(page_data.stored_runs())}
    if titles := [f"**{page_text.safe_text(stored[run_id].name, 60)}**" for run_id in run_ids if run_id in stored]:
        st.caption(
            f"{page_text.join_words(titles)} {'is' if len(titles) == 1 else 'are'} not among these runs. {offers}"
        )
    return [run_id for run_id in run_ids if run_id not in stored]


def _offer_choices(run_ids: Sequence[str]) -> list[str]:
    """Draw the runs whose ids begin with an ambiguous id in a link; returns the other ids."""
    by_id, other_ids = {run.id: run for run in page_data.stored_runs()}, []
    for run_id in run_ids:
        if len(matches := match_prefix(run_id, by_id)) < 2:
            other_ids.append(run_id)
            continue
        with st.container(border=True, gap="xsmall", key=f"several_{run_id}"):
            st.markdown(f":material/link: Several runs begin with “{page_text.safe_text(run_id)}”. Choose one:")
            for full_id in matches[:MAX_MATCHES]:
                st.button(
                    page_text.safe_text(f"{by_id[full_id].name} · {full_id}", 120), key=f"several_{run_id}_{full_id}",
                    type="tertiary", on_click=_replace_in_link, args=(run_id, full_id),
                )  # fmt: skip
    return other_ids


def _replace_in_link(prefix: str, run_id: str) -> None:
    """Callback: replace the beginning of an id in the link by the run's whole id."""
    for key in (address.RUN, address.RUNS, address.RUN_B, address.SELECTED_RUNS):
        ids = st.query_params.get(key, "").split(",")
        if prefix in ids:
            st.query_params[key] = ",".join(run_id if other_id == prefix else other_id for other_id in ids)
    view_state.enter_page("")  # so that the page reads the changed address


def _report_missing_runs(run_ids: Sequence[str], forget_runs: Callable[[], None], other_network_note: str) -> None:
    """Report that this machine lacks these runs, or has them on another benchmark, with a button to continue."""
    quoted_ids = first_few((f"“{page_text.safe_text(run_id, 20)}”" for run_id in run_ids), 3)
    if other_networks := [run for run_id in run_ids if (run := page_data.store().find(run_id)) and run.network]:
        title, network = (
            page_text.safe_text(words, 60) for words in (other_networks[0].name, other_networks[0].network)
        )
        st.info(other_network_note.format(title=title, network=network))
        draw_page_link(MASKS, "Masks of this run", "grid_on", run=other_networks[0].id)
    elif any((run := page_data.store().find(run_id)) and not page_data.belongs_to_benchmark(run) for run_id in run_ids):
        st.warning(
            f"This link names {quoted_ids}, {'a run' if len(run_ids) == 1 else 'runs'} of another benchmark than the "
            "current one. Scores are compared on one benchmark only; choose the benchmark on Models & runs, data.",
            icon=":material/link_off:",
        )
        draw_page_link(MODELS, "Choose the benchmark", "dataset", models_view="data")
    elif not any(map(run_choice.is_of_link, run_ids)):
        st.warning(RUN_GONE_NOTE if len(run_ids) == 1 else RUNS_GONE_NOTE, icon=":material/link_off:")
    else:
        nouns = "run" if len(run_ids) == 1 else "runs"
        st.warning(
            f"This link asks for {nouns} {quoted_ids}, which this machine does not have. The sender can send the "
            "recipe, too; the same recipe gives the same run.",
            icon=":material/link_off:",
        )
    st.button("Show an available run", on_click=forget_runs, type="primary")


def draw_run(run: Run) -> None:
    """Draw a sentence on the run, the origin of its numbers, and its warnings."""
    st.markdown(f"{page_text.run_in_words(run)} {run_badges(run)}")
    for line in run.cautions:
        st.caption(f":material/warning: {page_text.safe_text(line, 400)}")
    for remark in run.remarks:
        st.caption(f":material/info: {page_text.safe_text(remark, 400)}")


def draw_cautions(run: Run, title: str = "the result") -> None:
    """Draw the warnings of a run, if there are any; ``title`` names the run in Markdown."""
    if lines := [f"- {page_text.safe_text(line, 400)}" for line in run.cautions[:MAX_CAUTIONS]]:
        more = len(run.cautions) - len(lines)
        remaining = f"\n\n… and {plural(more, 'more warning')}, in its run.json." if more else ""
        st.warning(f"**Check {title}:**\n\n" + "\n".join(lines) + remaining, icon=":material/warning:")


def run_badges(run: Run) -> str:
    """Badges with the machine, device and seed of a run; Markdown."""
    device = page_text.safe_text(run.device, 40)
    if run.provenance == PRECOMPUTED:
        badge = f":gray-badge[:material/inventory_2: precomputed on {device}]"
    elif run.provenance != THIS_MACHINE:
        badge = f":gray-badge[:material/package_2: {page_text.safe_text(run.provenance, 80)}, {device}]"
    else:
        seconds = duration_text(sum(run.seconds.values()))
        badge = f":blue-badge[:material/computer: this machine, {device}, {seconds}]"
    return badge if run.seed is None else f"{badge} :gray-badge[:material/casino: seed {run.seed}]"


def draw_recipe_button(run: Run, key: str) -> None:
    """Draw a button that shows a run's recipe, with a download and its command line."""
    with st.popover("Recipe", icon=":material/receipt_long:", type="tertiary"):
        st.code(run.recipe_yaml, language="yaml")
        st.download_button(
            "Download", lambda: run.recipe_yaml, f"{run.id}.yaml", "text/yaml", key=f"yaml_{key}", on_click="ignore"
        )
        st.caption(f"On a command line: `mergescope run {run.id}.yaml`")

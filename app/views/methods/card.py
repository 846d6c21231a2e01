"""The card of one method: idea, parameters, choices of our implementation, and scores."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import text
from app.reading import samples
from app.reading.papers import published
from app.reading.papers.published import printed_color
from app.session import address, benchmark, pages, state
from app.views.methods import beside_papers, gallery
from app.widgets import controls, page
from merging.images.benchmarks.metrics import PER_TASK
from merging.methods.method import Merge, Method
from merging.recipes.papers.published import SOURCES, Figure, with_method
from merging.recipes.presets import PLUGIN
from merging.study.runs.run import Run

OTHERS, ONLY_NORMALIZED = "for other models on other images", "Only normalized accuracies (Norm.) can be compared."
SAME_TOWER = "for models of the same tower, {}"
JUDGED = "Whether experts and images are the same is judged in the table of the published experiment."


def card(method: Method, shown: Sequence[Method], runs: Sequence[Run], stored: Sequence[Run]) -> None:
    """Everything about one method; ``shown`` are the methods that Previous and Next step through."""
    with st.container(border=True, key="card"):
        _head(method, shown)
        with st.grid(2, min_column_width=380, gap="large"):
            with st.container():
                _idea(method)
            with st.container():
                _parameters(method)
        _doors(method)
        _figures(method, runs, stored)


def _head(method: Method, shown: Sequence[Method]) -> None:
    keys = [other.key for other in shown]
    place = keys.index(method.key) if method.key in keys else 0
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.header(method.title, anchor=False, width="stretch")
        for label, icon, by, shortcut in (("Previous", "arrow_back", -1, "P"), ("Next", "arrow_forward", 1, "N")):
            st.button(
                label, icon=f":material/{icon}:", key=label, type="tertiary", shortcut=shortcut,
                disabled=len(keys) < 2, on_click=state.pick_method, args=(keys[(place + by) % len(keys)],),
            )  # fmt: skip
    pieces = method.in_pieces(method.params())
    badges = [f":blue-badge[{method.role}]", f":gray-badge[needs {text.needs_words(method)}]"]
    badges += [f":gray-badge[works {'in pieces' if pieces else 'on whole tensors'}]"]
    badges += [":orange-badge[one model per task]"] if isinstance(method, Merge) and method.per_task else []
    st.markdown(" ".join(badges))


def _idea(method: Method) -> None:
    bounds = method.params.bounds()
    st.markdown(text.safe_text(method.summary, 600))
    filled = bool(bounds) and st.session_state.get("filled", False)
    st.latex(controls.filled_formula(method.formula, bounds, method.params().values() if filled else {})[0])
    if bounds:
        st.toggle("With the default values", key="filled", persist_state="session")
    if method.variant:
        st.markdown(f"**Choices of our implementation.** {text.safe_text(method.variant, 1000)}")
    st.caption(f":material/menu_book: {text.safe_text(method.cite.text(), 400)}")


def _parameters(method: Method) -> None:
    if method.params.bounds():
        table = gallery.parameters(method)
        st.table(table, border="horizontal", hide_index=True, alt=f"Parameters of {method.title}")
    else:
        st.markdown("It has no parameters.")
    file, code = gallery.code(method)
    with st.expander(f"Our code, in `{file}`", icon=":material/code:"):
        st.code(code, language="python")


def _doors(method: Method) -> None:
    """Links to the Merge page with this method in the chain."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if chain := gallery.chain(method):
            page.open_page(pages.MERGE, "Open in Merge", "merge", chain=chain)
        if method.key == PLUGIN[0]:
            page.open_page(
                pages.SCORES, "In front of every merge", "arrow_outward", **{address.SCORES_VIEW: "plug-in matrix"}
            )
        if presets := gallery.presets(method):
            with st.popover(f"Combinations in the papers ({len(presets)})", icon=":material/playlist_play:"):
                for preset, chain in presets:
                    page.open_page(pages.MERGE, text.safe_text(preset.name_in_lists()), "merge", chain=chain)


def _figures(method: Method, runs: Sequence[Run], stored: Sequence[Run]) -> None:
    """What papers print for chains with the method, and our runs of the same chains."""
    st.subheader("What papers print, and what we measure", anchor=False)
    separate = method.role == "merge"  # chains with edits before a merge have a table of their own
    figures, own = with_method(method.role, method.key), gallery.with_method(method, runs)
    alone = published.rows(
        [figure for figure in figures if not separate or (len(figure.chain) == 1 and not figure.adapt)],
        [run for run in own if not separate or (len(run.chain) == 1 and not run.adapt)],
    )
    if alone:
        _table(alone, f"Published accuracies of {method.title} beside ours; those marked * are computed", stored)
    else:
        st.markdown("No paper figure is known, and no run is stored here. Open it in Merge and press Run.")
    chains = [figure for figure in figures if separate and (len(figure.chain) > 1 or figure.adapt)]
    combined = published.rows(chains, [run for run in own if separate and (len(run.chain) > 1 or run.adapt)])
    if combined:
        with st.expander(f"With other steps before it or on top ({len(combined)})", icon=":material/account_tree:"):
            _table(combined, f"The same for chains of {method.title} and other steps", stored)
    if alone or combined:
        _explain(method, figures)
        beside_papers.show([*alone, *combined], runs)


def _table(rows: Sequence[published.Row], alt: str, stored: Sequence[Run]) -> None:
    table = published.table(rows, stored)
    printed = [column for column in table.columns if column[0] in published.MODELS.values()]
    st.dataframe(
        table.style.set_properties(subset=printed, color=printed_color()),
        hide_index=True,
        height="content",
        column_config=published.columns(table),
        alt=alt,
    )
    if ids := list(dict.fromkeys(row.run.id for row in rows if row.run and row.run.has_scores)):
        page.open_page(pages.SCORES, "Compare our runs in Scores", "monitoring", runs=",".join(ids))


def _explain(method: Method, figures: Sequence[Figure]) -> None:
    """What the two groups of columns are, and why they are separate."""
    named = [f"{key}: {source}." for key, source in SOURCES.items() if any(f.source.startswith(key) for f in figures)]
    computed, ours = text.safe_text(published.COMPUTED, 300), text.safe_text(benchmark.in_words())
    own = published.tower()
    whose, rule = (SAME_TOWER.format(own), JUDGED) if own else (OTHERS, ONLY_NORMALIZED)
    st.caption(
        f"{published.PUBLISHED}: as printed, {whose}, eight data sets in domain and thirteen out of it. {computed} "
        f"{published.OURS}: {ours} on the {samples.part()} of its data sets, with 95% intervals. {rule} "
        + text.safe_text(" ".join(named), 1000)
    )
    if isinstance(method, Merge) and method.per_task:
        st.caption(PER_TASK)

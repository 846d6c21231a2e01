"""DRM's joint space of one layer on the Conflicts page: spectrum, each expert's energy, pruning, the four steps.

The joint space of a layer is spanned by the singular vectors of all experts' task vectors, joined into one matrix.
Only the decomposition takes long enough to wait for a click.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import page_data
from app.session import address
from app.session.click_errors import guarded_fragment
from app.views.conflicts import linear_layers, sign_agreement
from app.widgets import chart_view, page_parts, paper_line, selection_pickers
from merging.base.text import duration_text
from merging.study.paper_facts.network_facts import compare_dropped_ranges
from merging.study.runs.run import Run
from viz.figure_text import percent, plural

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.analysis.drm_joint_space import JointSpace

SpaceKey = tuple[str, str, bool]  # run id, layer, whether the matrices are stacked vertically
# Label in pickers and links -> name in tables and charts.
DIRECTIONS = {"H, side by side": False, "V, on top of each other": True}
ENERGY_METRICS = {
    "row norm before renormalization": "norm",
    "share of its energy": "energy",
    "energy so far": "cumulative",
}
RANKING_SCOPES = {"each expert alone": False, "all together": True}
DEFAULT_RATIO = 0.5
MAX_SECONDS = 3.0  # a longer decomposition waits for a click
DIRECTION_HELP = (
    "H decomposes the experts' matrices side by side: a shared output space. V stacks them: a shared input space."
)
RANKING_HELP = "DRM ranks the entries of all experts together; its Figure 3 prunes each expert's matrix by itself."
NEIGHBOR_NOTE = " A column shows up to {} neighboring directions: the mean of their norms, the sum of their energies."
DECOMPOSITION_OFFER = (
    "This layer has {count} matrices of {height:,} × {width:,}. Decomposing them takes about {seconds} on this "
    "machine; pruning and drawing take a few more seconds."
)


def decompose_or_offer(run: Run, layer: str, vertical: bool) -> JointSpace | None:
    """The joint space of a layer; None while a long decomposition waits for a click."""
    seconds, slot = linear_layers.estimate_seconds(run, layer, vertical), st.empty()
    if seconds > MAX_SECONDS:
        count, height, width = linear_layers.read_task_matrices(run.id, layer).shape
        with slot.container(border=True):
            st.markdown(
                DECOMPOSITION_OFFER.format(count=count, height=height, width=width, seconds=duration_text(seconds))
            )
            if not st.button("Decompose", key="decompose"):
                return None
    if not seconds:
        return linear_layers.decompose_layer(run, layer, vertical)
    label = f"Decomposing, about {duration_text(seconds)} …"
    progress_bar = slot.progress(0.0, label)
    decomposition = linear_layers.decompose_layer(
        run, layer, vertical, lambda share: progress_bar.progress(share, label)
    )
    slot.empty()
    return decomposition


def pick_direction() -> bool:
    """Draw the picker of how matrices are joined; returns whether they are stacked vertically."""
    return DIRECTIONS[page_parts.pick_button("Direction", DIRECTIONS, address.DIRECTION, help=DIRECTION_HELP)]


@guarded_fragment
def draw_view(run: Run) -> None:
    """Draw the panel of one layer."""
    with st.container(horizontal=True, gap="medium"):
        layer = linear_layers.pick_layer(run, linear_layers.find_middle_layer(run))
        vertical = pick_direction()
        cut = st.slider(
            "Rank cut", 0.0, 0.1, sign_agreement.DEFAULT_RANK_CUT, 0.005, format="%.3f", key=address.RANK_CUT,
            bind=address.BIND, help=sign_agreement.RANK_CUT_HELP, width=240,
        )  # fmt: skip
    if not layer:
        st.info("Choose a layer above.")
        return
    if (space := decompose_or_offer(run, layer, vertical)) is None:
        return
    if not len(space.values):
        st.info("No expert changed this layer.")
        return
    key = (run.id, layer, vertical)
    draw_spectrum(key, space, cut)
    expert = draw_energy(run, key, space, cut)
    draw_pruning(key, space, cut, expert)


def make_report_options(key: SpaceKey) -> dict[str, Any]:
    """The report's options for every picture: a description of layer and space, and the run of these experts."""
    run = page_data.store().find(key[0])
    space_name = "V (a shared input space)" if key[2] else "H (a shared output space)"
    sentence = f"The layer {page_text.safe_text(key[1])} in the joint space {space_name}."
    return {"description": sentence, "sources": [run] if run else []}


def draw_spectrum(key: SpaceKey, space: JointSpace, cut: float) -> None:
    """Draw the singular values and the rank cut."""
    table = build_spectrum(key, cut, space)
    retained = table[table["kept"]]
    caption = (
        f"Singular values of the experts' matrices {'stacked' if key[2] else 'side by side'}, "
        f"{plural(len(space.experts), 'expert')}. The rank cut keeps {len(retained):,} of {len(table):,} directions "
        f"with {percent(float(retained['energy'].max()), 2)} of the energy (squared entries). DRM's released code "
        "cuts at 0.01; the paper says it does not cut."
    )
    chart_view.draw_chart(
        "joint_spectrum",
        table,
        name=f"spectrum_{key[0][:8]}",
        rank_tol=cut,
        caption=caption,
        **make_report_options(key),
    )


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def build_spectrum(key: SpaceKey, cut: float, _space: JointSpace) -> pd.DataFrame:
    """The singular values of a space, one row for each direction."""
    from merging.study.analysis.drm_joint_space import spectrum

    return spectrum(_space, cut)


def draw_energy(run: Run, key: SpaceKey, space: JointSpace, cut: float) -> str | None:
    """Draw energies and row norms by expert and direction; returns the chosen expert."""
    chart_view.draw_question("joint_energy")
    with st.container(horizontal=True, gap="medium"):
        value = page_parts.pick_label("Color", ENERGY_METRICS, address.ENERGY_METRIC, width=290)
        expert = selection_pickers.pick_selected(address.EXPERT, run.experts, "Expert", first=run.experts[0], width=220)
    table = build_energies(key, cut, space)
    neighbor_count = int((table["last"] - table["first"]).max()) + 1
    neighbor_note = NEIGHBOR_NOTE.format(neighbor_count) if neighbor_count > 1 else ""
    caption = (
        "Cut into one part for each expert, the orthonormal rows no longer have length 1: the squares of a direction's "
        f"row norms add up to 1 over the experts, {(1 / len(run.experts)) ** 0.5:.2f} each if all share it "
        f"equally.{neighbor_note}"
    )
    chart_view.draw_chart(
        "joint_energy", table, name=f"energy_{key[0][:8]}", question_drawn=True, value=value,
        selected=expert, caption=caption, **make_report_options(key),
    )  # fmt: skip
    return expert


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def build_energies(key: SpaceKey, cut: float, _space: JointSpace) -> pd.DataFrame:
    """Energies and row norms of a space, by expert and direction."""
    from merging.study.analysis.drm_joint_space import energy_by_direction

    return energy_by_direction(_space.truncate(cut))


def draw_pruning(key: SpaceKey, space: JointSpace, cut: float, expert: str | None) -> None:
    """Draw the share that pruning drops from every basis vector, and the four steps, at the same prune ratio."""
    chart_view.draw_question("joint_dropped")
    with st.container(horizontal=True, gap="medium"):
        ratio = st.slider(
            "Prune ratio", 0.0, 0.95, DEFAULT_RATIO, 0.05, format="percent", key=address.JOINT_RATIO, bind=address.BIND,
            width=260,
        )  # fmt: skip
        ranked = st.selectbox(
            "Entries ranked", RANKING_SCOPES, key=address.RANKING, bind=address.BIND, width=200, help=RANKING_HELP
        )
    ranked_together = RANKING_SCOPES[ranked]
    table = build_dropped_shares(key, cut, ratio, ranked_together, space)
    # groupby sorts: the mean without renormalization, then that with it.
    means = [percent(float(rows["dropped"].mean())) for _, rows in table.groupby("renorm")]
    caption = (
        f"The smallest {percent(ratio, 0)} of the entries of "
        f"{'all matrices together' if ranked_together else 'the matrix of each expert by itself'} are dropped (DRM, "
        "Fig. 3). "
        f"The mean over all experts and rows is {means[1]} with and {means[0]} without renormalization; only the "
        "spread over the rows differs."
    )
    shown_rows = table[table["expert"] == expert] if expert else table
    # "swing" is the claims' name of the spread of the dropped shares over the rows.
    claims = paper_line.claims_in_words("conflicts/joint_space", {"swing": compare_dropped_ranges(shown_rows)})
    chart_view.draw_chart(
        "joint_dropped", table, name=f"dropped_{key[0][:8]}", question_drawn=True, expert=expert, ratio=ratio,
        caption=caption, claims=claims, **make_report_options(key),
    )  # fmt: skip
    step_matrices, facts = build_steps(key, cut, ratio, ranked_together, space)
    caption = (
        "Every cell is the mean of |x| over a block of the real matrix, at most 96 × 256 cells a step. Steps 1 to 3 "
        "are in units of a unit vector's root mean square, so color shows the row norms. "
        f"{percent(facts['kept'])} of the entries are kept, {percent(facts['elected'])} of those have the "
        f"elected sign; at scaling 1 the merged vector is {facts['norm']:.2f} times as long as the experts' mean in "
        f"these directions. The smallest {percent(ratio, 0)} are pruned; DRM's default prunes 80%, and ranks all "
        "entries together."
    )
    name = f"steps_{key[0][:8]}"
    chart_view.draw_chart(
        "joint_steps", step_matrices, name=name, vertical=key[2], caption=caption, **make_report_options(key)
    )


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner="Pruning the layer …")
def build_dropped_shares(
    key: SpaceKey, cut: float, ratio: float, ranked_together: bool, _space: JointSpace
) -> pd.DataFrame:
    """The share of every basis vector that pruning drops."""
    from merging.study.analysis.drm_joint_space import dropped_shares

    return dropped_shares(_space.truncate(cut), ratio, ranked_together)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner="Pruning and merging the layer …")
def build_steps(
    key: SpaceKey, cut: float, ratio: float, ranked_together: bool, _space: JointSpace
) -> tuple[pd.DataFrame, dict[str, float]]:
    """The matrices of every step in reduced size, and the numbers for the caption."""
    from merging.study.analysis.drm_joint_space import algorithm_steps

    return algorithm_steps(_space.truncate(cut), ratio, ranked_together)

"""DRM's joint space of one layer on the Conflicts page: spectrum, each expert's energy, pruning, the four steps.

Everything but the decomposition is computed at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from app import text
from app.reading import data
from app.session import address, selection
from app.session.clicks import fragment
from app.views.conflicts import layers, signs
from app.widgets import chart, paper_line, selected
from merging.base.text import duration_text
from merging.study.paper_facts.network import swing
from merging.study.runs.run import Run
from viz.text import percent, plural

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.analysis.drm_joint_space import JointSpace

# Label in pickers and links -> name in tables and charts.
Key = tuple[str, str, bool]  # run, layer, vertical
DIRECTIONS = {"H, side by side": False, "V, on top of each other": True}
ALONG = {"row norm before renormalization": "norm", "share of its energy": "energy", "energy so far": "cumulative"}
RANKED = {"each expert alone": False, "all together": True}
RATIO = 0.5
PATIENCE = 3.0  # a decomposition that takes longer, in seconds, waits for a click
SHARING = "H decomposes the experts' matrices side by side: a shared output space. V stacks them: a shared input space."
RANKING = "DRM ranks the entries of all experts together; its Figure 3 prunes each expert's matrix by itself."
ASKING = (
    "This layer has {count} matrices of {height:,} × {width:,}. Decomposing them takes about {seconds} here; "
    "pruning and drawing take a few seconds more."
)


def decomposed(run: Run, layer: str, vertical: bool) -> JointSpace | None:
    """The joint space of a layer; None while a long decomposition waits for a click."""
    seconds, place = layers.expected(run, layer, vertical), st.empty()
    if seconds > PATIENCE:
        count, height, width = layers.matrices(run.id, layer).shape
        with place.container(border=True):
            st.markdown(ASKING.format(count=count, height=height, width=width, seconds=duration_text(seconds)))
            if not st.button("Decompose", key="decompose"):
                return None
    if not seconds:
        return layers.space(run, layer, vertical)
    label = f"Decomposing, about {duration_text(seconds)} …"
    bar = place.progress(0.0, label)
    decomposition = layers.space(run, layer, vertical, lambda share: bar.progress(share, label))
    place.empty()
    return decomposition


def pick_direction() -> bool:
    """The picker of how matrices are joined; True if they are stacked."""
    picked = st.segmented_control(
        "Direction", DIRECTIONS, default=next(iter(DIRECTIONS)), key=address.DIRECTION, bind=address.BIND,
        required=True,
        help=SHARING,
    )  # fmt: skip
    return DIRECTIONS[picked]


@fragment
def view(run: Run) -> None:
    """The panel of one layer."""
    with st.container(horizontal=True, gap="medium"):
        layer = layers.choose(run, layers.middle(run))
        vertical = pick_direction()
        cut = st.slider(
            "Rank cut", 0.0, 0.1, signs.CUT, 0.005, format="%.3f", key=address.RANK_CUT, bind=address.BIND,
            help=signs.CUTTING, width=240,
        )  # fmt: skip
    if not layer:
        st.info("Choose a layer above.")
        return
    if (whole := decomposed(run, layer, vertical)) is None:
        return
    if not len(whole.values):
        st.info("No expert changed this layer.")
        return
    key = (run.id, layer, vertical)
    spectrum(key, whole, cut)
    expert = energy(run, key, whole, cut)
    pruning(key, whole, cut, expert)


def about(key: Key) -> dict[str, Any]:
    """What the report says about every picture: the layer, the space, and the run of these experts."""
    run = data.store().find(key[0])
    side = "V (a shared input space)" if key[2] else "H (a shared output space)"
    sentence = f"The layer {text.safe_text(key[1])} in the joint space {side}."
    return {"description": sentence, "of": [run] if run else []}


def spectrum(key: Key, whole: JointSpace, cut: float) -> None:
    """Singular values and the rank cut."""
    table = spectrum_table(key, cut, whole)
    kept = table[table["kept"]]
    caption = (
        f"Singular values of the experts' matrices {'on top of each other' if key[2] else 'side by side'}, "
        f"{plural(len(whole.experts), 'expert')}. The rank cut keeps {len(kept):,} of {len(table):,} directions "
        f"with {percent(float(kept['energy'].max()), 2)} of the energy (squared entries). DRM's released code "
        "cuts at 0.01; the paper says it does not cut."
    )
    chart.chart("joint_spectrum", table, name=f"spectrum_{key[0][:8]}", rank_tol=cut, caption=caption, **about(key))


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def spectrum_table(key: Key, cut: float, _whole: JointSpace) -> pd.DataFrame:
    """Singular values of a space."""
    from merging.study.analysis.drm_joint_space import spectrum

    return spectrum(_whole, cut)


def energy(run: Run, key: Key, whole: JointSpace, cut: float) -> str | None:
    """Energy and row norms by expert and direction; returns the chosen expert."""
    chart.ask("joint_energy")
    with st.container(horizontal=True, gap="medium"):
        value = ALONG[st.selectbox("Color", ALONG, key=address.ENERGY_METRIC, bind=address.BIND, width=290)]
        expert = selected.pick(address.EXPERT, run.experts, "Expert", first=run.experts[0], width=220)
    table = energy_table(key, cut, whole)
    runs = int((table["last"] - table["first"]).max()) + 1
    joined = (
        f" A column shows up to {runs} neighboring directions: the mean of their norms, the sum of their energies."
        if runs > 1
        else ""
    )
    caption = (
        "Cut into one part for each expert, the orthonormal rows no longer have length 1: the squares of a direction's "
        f"row norms add up to 1 over the experts, {(1 / len(run.experts)) ** 0.5:.2f} each if all share it "
        f"equally.{joined}"
    )
    chart.chart(
        "joint_energy", table, name=f"energy_{key[0][:8]}", headed=True, on_click=choose_expert, value=value,
        selected=expert, caption=caption, **about(key),
    )  # fmt: skip
    return expert


def choose_expert() -> None:
    """Callback of a click on the energies."""
    if cell := chart.clicked("joint_energy"):
        selection.choose(address.EXPERT, cell["expert"])


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def energy_table(key: Key, cut: float, _whole: JointSpace) -> pd.DataFrame:
    """Energies and row norms of a space, by expert and direction."""
    from merging.study.analysis.drm_joint_space import energies

    return energies(_whole.cut(cut))


def pruning(key: Key, whole: JointSpace, cut: float, expert: str | None) -> None:
    """What pruning drops from every basis vector, and the four steps, at the same prune ratio."""
    chart.ask("joint_dropped")
    with st.container(horizontal=True, gap="medium"):
        ratio = st.slider(
            "Prune ratio", 0.0, 0.95, RATIO, 0.05, format="percent", key=address.JOINT_RATIO, bind=address.BIND,
            width=260,
        )  # fmt: skip
        ranked = st.selectbox("Entries ranked", RANKED, key=address.RANKING, bind=address.BIND, width=200, help=RANKING)
    joint = RANKED[ranked]
    table = dropped_table(key, cut, ratio, joint, whole)
    means = [percent(float(rows["dropped"].mean())) for _, rows in table.groupby("renorm")]
    caption = (
        f"The smallest {percent(ratio, 0)} of the entries of "
        f"{'all matrices together' if joint else 'the matrix of each expert by itself'} are dropped (DRM, Fig. 3). "
        f"Over all experts and rows that is {means[1]} with and {means[0]} without renormalization: only the spread "
        "over the rows differs."
    )
    drawn = table[table["expert"] == expert] if expert else table
    paper, of = paper_line.of("conflicts/joint_space", {"swing": swing(drawn)}), about(key)
    chart.chart(
        "joint_dropped", table, name=f"dropped_{key[0][:8]}", headed=True, expert=expert, ratio=ratio, caption=caption,
        **of | {"description": f"{of['description']} {paper}"},
    )  # fmt: skip
    paper_line.show(paper)
    pictures, facts = steps_table(key, cut, ratio, joint, whole)
    caption = (
        "Every cell is the mean of |x| over a block of the real matrix, at most 96 × 256 cells a step. Steps 1 to 3 "
        "are in units of a unit vector's root mean square, so color shows the row norms. "
        f"{percent(facts['kept'])} of the entries are kept, {percent(facts['elected'])} of those have the "
        f"elected sign; at scaling 1 the merged vector is {facts['norm']:.2f} times as long as the experts' mean in "
        f"these directions. The smallest {percent(ratio, 0)} are pruned; DRM's default prunes 80%, and ranks all "
        "entries together."
    )
    name = f"steps_{key[0][:8]}"
    chart.chart("joint_steps", pictures, name=name, vertical=key[2], caption=caption, **about(key))


@st.cache_data(max_entries=data.KEPT, show_spinner="Pruning the layer …")
def dropped_table(key: Key, cut: float, ratio: float, joint: bool, _whole: JointSpace) -> pd.DataFrame:
    """The share of every basis vector that pruning drops."""
    from merging.study.analysis.drm_joint_space import dropped

    return dropped(_whole.cut(cut), ratio, joint)


@st.cache_data(max_entries=data.KEPT, show_spinner="Pruning and merging the layer …")
def steps_table(
    key: Key, cut: float, ratio: float, joint: bool, _whole: JointSpace
) -> tuple[pd.DataFrame, dict[str, float]]:
    """The reduced matrices of every step, and the numbers for the caption."""
    from merging.study.analysis.drm_joint_space import steps

    return steps(_whole.cut(cut), ratio, joint)

"""Sign agreement on the Conflicts page: in the weights, in DRM's joint spaces, and back in the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import conflict_layers, data, state
from merging.runs import Run

if TYPE_CHECKING:
    import pandas as pd

    from merging.analysis.signs import Layer

DENSITIES = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05)
DENSITY = 0.2
PRUNING = "Each expert keeps this share of the largest entries of its own matrix, in the space that is looked at."


@st.cache_data(max_entries=data.KEPT, show_spinner="Counting signs …")
def layer(run_id: str, name: str, density: float) -> Layer:
    """One linear layer, before and after pruning."""
    from merging.analysis.signs import look_at_layer

    return look_at_layer(conflict_layers.matrices(run_id, name), (1.0, density))


def agreement(found: Layer) -> pd.DataFrame:
    """Agreement by space and density."""
    import pandas as pd

    from merging.analysis.signs import SPACES, agreement

    rows = [(SPACES[space], density, *agreement(counts)) for (space, density), counts in found.votes.items()]
    return pd.DataFrame(rows, columns=["space", "density", "mean", "null", "kept", "positions"])


@st.fragment
def view(run: Run) -> None:
    """Sign agreement of the experts of a run."""
    density = st.select_slider(
        "Density", DENSITIES, DENSITY, key=state.DENSITY, bind=state.BIND, help=PRUNING, width=320
    )
    name = conflict_layers.choose(run, conflict_layers.middle(run))
    if name:
        st.dataframe(agreement(layer(run.id, name, density)), hide_index=True, alt="Sign agreement by space")

"""The section of Scores on the size of stored merges: a chart and the rules of counting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data
from app.widgets import chart_view, paper_line
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

COUNTED_NOTE = (
    "Paper's rule: 4 bytes for each non-zero entry of the merged task vector, none for positions (LwPTV, Table 15); a "
    "dense vector counts in full, including unused text tensors of the checkpoint. Files: the written files. Changes "
    "only: the difference from the pretrained model, with a header and every tensor omitted, whole, with a bitmap or "
    "with coordinates, whichever is smallest; it is useful only with the pretrained model. All that a user needs: "
    "the model and the heads of the merged tasks. 1 MiB is 1,048,576 bytes."
)
SHARED_NOTE = (
    " If models of several tasks share one task vector, it is counted once, with a bit for each scalar and one number "
    "per task, and together with the pretrained model in what a user needs; the files contain every model in full."
)


def draw_stored_size(runs: Sequence[Run]) -> None:
    """Draw the sizes of the merges, counted in four ways."""
    run_ids = tuple(run.id for run in runs)
    counting_note = COUNTED_NOTE + (SHARED_NOTE if any(run.per_task for run in runs) else "")
    claims = paper_line.claims_in_words("scores/stored_size")
    chart_view.draw_chart(
        "storage", _build_bytes_table(run_ids), name="scores_storage", description=counting_note, claims=claims,
        sources=runs,
    )  # fmt: skip
    st.caption(counting_note)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _build_bytes_table(run_ids: tuple[str, ...]) -> pd.DataFrame:
    """One row for each run, way of counting and part, in bytes."""
    import pandas as pd

    from merging.study.analysis.storage_accounting import storage_table

    runs = [page_data.store().get_run(run_id) for run_id in run_ids]
    return pd.concat(
        [storage_table(run).assign(run=run.id, label=page_text.title_with_note(run)) for run in runs], ignore_index=True
    )

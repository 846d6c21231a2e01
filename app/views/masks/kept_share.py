"""The share of the task vectors that a merge keeps: by the masks of an edit, or by the merged weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.reading import page_data
from app.widgets import chart_view, paper_line
from merging.study.paper_facts.network_facts import find_components
from merging.study.runs.run import Run
from viz.figure_text import percent, plural

if TYPE_CHECKING:
    import pandas as pd

FACTORS = "factors"  # the table of a run that multiplied its task vectors by factors


def kept_in_words(table: pd.DataFrame, ratio: float, run_ratio: float | None) -> str:
    """A sentence on the share that the final mask (shared by the experts, if the run shares masks) keeps; Markdown.

    ``run_ratio`` is None if the run did not prune.
    """
    tensors = table.groupby("tensor", sort=False).agg(numel=("numel", "first"), final=("final", "any"))
    kept = tensors[tensors["final"]]
    share = kept["numel"].sum() / tensors["numel"].sum()
    ratio_note = (
        ""
        if run_ratio is None
        else ", as in this run"
        if abs(ratio - run_ratio) < 1e-9
        else f"; this run used {run_ratio:g}"
    )
    return (
        f"At prune ratio {ratio:g}{ratio_note}: **{len(kept)} of {plural(len(tensors), 'tensor')}** are kept for at "
        f"least one expert, **{kept['numel'].sum():,} of {tensors['numel'].sum():,} scalars "
        f"({percent(share)})**; the others stay pretrained."
    )


def unpruned_in_words(run: Run) -> str:
    """A sentence on a run that did not prune tensors by their saliency; Markdown."""
    if FACTORS not in run.tables:
        return "This run did not prune tensors."
    table = page_data.run_table(run.id, FACTORS)
    is_zero = (table["factor"] == 0).groupby(table["tensor"], sort=False).all()
    zero_count, tensor_count = int(is_zero.sum()), len(is_zero)
    return (
        f"In this run, factors were set by hand: **{zero_count} of {plural(tensor_count, 'tensor')}** stay pretrained. "
        "*Counted from the merged weights*, further below, shows the kept share."
    )


def list_tensors_by_masks(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each tensor of a table of masks: whether it is kept for any expert."""
    kept = table.groupby("tensor", sort=False)["final"].any().to_numpy()
    return table.drop_duplicates("tensor").assign(kept=kept, component=find_components)


def list_tensors_by_weights(run: Run) -> tuple[pd.DataFrame, str]:
    """One row for each tensor of a run with the scalars that the merge changed, and the rule of counting them."""
    table = page_data.run_table(run.id, "tensors")
    condition = "any of its models differs" if run.per_task else "the merged model differs"
    rule = (
        f"Every scalar in which {condition} from the pretrained one counts as kept, before rounding to its data type."
    )
    return table.assign(kept=table["kept_numel"] > 0, component=find_components), rule


def draw_kept_share(table: pd.DataFrame, run: Run, by: str, rule: str) -> None:
    """Draw the kept shares, split ``by`` role, kind of layer or component; ``rule`` is the rule of counting them."""
    paper_claims = paper_line.claims_in_words("masks/kept_share")
    chart_view.draw_chart(
        "kept_share", table, name=f"kept_share_{run.id[:8]}", question_drawn=True, by=by,
        description=f"{rule} {paper_claims}", sources=[run],
    )  # fmt: skip
    paper_line.draw_claims(paper_claims, [run])

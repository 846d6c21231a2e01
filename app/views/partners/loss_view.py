"""Who hurts whom on the Partners page: what a task loses when another expert joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.session import address
from app.views.partners import partner_data
from app.views.partners.partner_data import Team
from app.widgets import chart_view, page_parts
from merging.images.benchmarks.paired_scores import find_smallest_visible
from merging.study.partners.who_hurts import AMONG_ALL, IN_PAIRS, find_worst
from viz.figure_text import plural

if TYPE_CHECKING:
    import pandas as pd

MEANINGS = {
    IN_PAIRS: "Each row is a task merged with its own expert alone; a column says what its accuracy does when that "
    "expert joins. Out of domain, the expert alone is compared with the pretrained model.",
    AMONG_ALL: "Each row is a task after all experts are merged; a column says what its accuracy does when that expert "
    "joins the others.",
}
NO_CHANGE = "With a single expert this chain returns the pretrained model, to which losses are then relative."
DETAILS = (
    "Intervals are of 95 % and paired by image: Newcombe's for a task, a bootstrap of images for the mean out of "
    "domain. Experts stand in the order of an average-linkage clustering of what they cost each other among all. "
    "Arrows mark the largest losses, at most three, of those whose interval is above zero."
)


def draw_view(team: Team) -> None:
    """Draw the matrix of losses, as far as it is measured."""
    chart_view.draw_question("partner_losses")
    is_known = not partner_data.read_losses(team.stored_subsets.key, AMONG_ALL, team.answers).empty
    companies = (AMONG_ALL, IN_PAIRS) if is_known else (IN_PAIRS, AMONG_ALL)
    among = page_parts.pick_button("Experts meet", companies, address.COMPANY)
    losses = partner_data.read_losses(team.stored_subsets.key, among, team.answers)
    changes = losses.rename(columns={"task": "first", "expert": "second"}).assign(
        change=-losses["loss"], low=-losses["high"], high=-losses["low"]
    )
    alone = NO_CHANGE if among == IN_PAIRS and team.answers.is_pretrained_alone else ""
    chart_view.draw_chart(
        "partner_losses", changes, name=f"partners_{team.sweep.id}", question_drawn=True,
        order=partner_data.order_team(team), worst=find_worst(losses),
        caption=f"{MEANINGS[among]} {alone} {describe_clear_losses(losses)} {DETAILS} {team.note}",
        sources=[team.sweep],
    )  # fmt: skip


def describe_clear_losses(losses: pd.DataFrame) -> str:
    """How many losses differ from zero, how many would by chance, and the smallest visible one; empty without any."""
    if losses.empty:
        return ""
    clear = int(((losses["low"] > 0) | (losses["high"] < 0)).sum())
    visible = find_smallest_visible(losses["low"], losses["high"]).median()
    return (
        f"{clear} of {plural(len(losses), 'interval')} exclude zero; about {0.05 * len(losses):.0f} would by chance "
        "(5\u00a0%) if no expert changed anything. The smallest loss that a cell can show is "
        f"{100 * visible:.0f} points (median; 80 % power)."
    )

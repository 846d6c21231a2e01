"""The expected loss of each task on the Merge page, before the merge runs, or why none is stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading.expert_names import expert_name
from app.session import address, benchmark_choice
from app.widgets.panels import foretold_panel
from merging.models.task_checkpoints import list_tasks
from merging.recipes.recipe import Recipe
from merging.study.partners.forecast import Forecast, forecast_losses
from merging.study.partners.foretell import REGRESSION
from merging.study.partners.subsets import DEFAULT_IMAGES

if TYPE_CHECKING:
    from app.widgets.panels.foretold_panel import Foretold

HELP = (
    "What each task loses against its own expert merged alone with this chain, foretold from weights and a few "
    "training images by a regression on measured pairs and triples."
)
MEANING = (
    "Over all tasks, ranges hold 80 % of the errors for teams that the regression had not seen (10–90 % quantiles of "
    "{} losses); for a single task, it may be more or less. ρ = {:.2f}, p = {:.2g} against shuffled tasks. {}"
)
NOT_MEASURED = "No expected loss: pairs and triples of these experts are not measured with this chain and these values."
NO_PREDICTORS = "No expected loss: what is known of these experts before a merge is not measured."
NOTHING_TO_LOSE = (
    "No expected loss: with a single expert this chain returns the pretrained model, so there is nothing to lose."
)
OWN = "The regression of the bundled experts is never used for others; a fit on your own pairs and triples is needed."


def draw_expected_loss(recipe: Recipe, experts: Mapping[str, str]) -> None:
    """Draw the switch and, if it is on, the expected losses of a recipe on some of ``experts`` {name: reference}."""
    if not st.toggle("Expected loss", key=address.EXPECTED_LOSS, bind=address.BIND, help=HELP):
        return
    with st.container(border=True, key="expected_loss_box", gap="small"):
        if len(recipe.experts) < 2:
            st.markdown("No expected loss: it is about teams of experts, and this is a single one.")
            return
        if len(list_tasks(list(experts))) < len(experts):
            st.markdown("No expected loss: it is about experts with one checkpoint each, and one of these has several.")
            return
        whole = replace(recipe, experts=tuple(experts.items()))
        foretold = foretold_panel.read_foretold(whole, DEFAULT_IMAGES)
        if not foretold.is_ready:
            _draw_missing(foretold, whole)
            return
        if foretold.stored_subsets.answers.is_pretrained_alone:
            st.markdown(NOTHING_TO_LOSE)
            return
        with st.spinner("Foretelling losses …"):
            judged = foretold.verdicts
        team = frozenset(name for name, _ in recipe.experts)
        forecast = forecast_losses(foretold.pairs, foretold.losses, judged, team)
        st.markdown(describe_forecast(forecast))
        if not forecast.reason:
            verdict = judged.set_index("name").loc[REGRESSION]
            st.caption(MEANING.format(forecast.residuals, verdict["rho"], verdict["p"], foretold.note))


def _draw_missing(foretold: Foretold, whole: Recipe) -> None:
    """Say what is missing, and offer to measure it."""
    st.markdown(NO_PREDICTORS if foretold.stored_subsets.answers.complete else NOT_MEASURED)
    bundled = page_data.benchmark().experts if benchmark_choice.is_bundled() else {}
    if dict(whole.experts) != {name: str(reference) for name, reference in bundled.items()}:
        st.caption(OWN)
    foretold_panel.draw_missing(foretold, "expected_loss")


def describe_forecast(forecast: Forecast) -> str:
    """The expected losses in a sentence with what is measured of them, or why none is stated; Markdown."""
    if forecast.reason:
        name = f"{page_text.safe_text(expert_name(forecast.task))}: " if forecast.task else ""
        return f"No expected loss. {name}{page_text.safe_text(forecast.reason, 300)}"
    rows = forecast.losses.sort_values("high", ascending=False).to_dict("records")
    words = [f"**{page_text.safe_text(expert_name(row['task']))}** {_format_range(row['low'], row['high'])}"
             for row in rows]  # fmt: skip
    measured = [
        f"{page_text.safe_text(expert_name(row['task']))} {'gained' if row['measured'] < 0 else 'lost'} "
        f"{abs(100 * row['measured']):.1f}"
        for row in rows if row["measured"] == row["measured"]
    ]  # fmt: skip
    known = f" Measured of this very team: {', '.join(measured)} points." if measured else ""
    return f":material/query_stats: Expected loss: {', '.join(words)}.{known}"


def _format_range(low: float, high: float) -> str:
    """A range of a loss, a share, in points; a negative loss is a gain."""
    first, last = round(100 * low), round(100 * high)
    if first < 0 < last:
        return f"from a gain of {-first} to a loss of {last} points"
    ends = " to ".join(map(str, sorted({abs(first), abs(last)})))
    return f"{'gains ' if first < 0 else ''}{ends} points"

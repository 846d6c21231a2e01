"""The factors that a step's rules yield, as a small picture, and a link that opens them for painting on Masks.

A manual step multiplies task vectors by factors, tensor by tensor: each expert's before the merge, or the merged one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import streamlit as st

from app.reading import expert_names, figures, page_data, recipes
from app.session import address, pages
from app.session.draft import Draft, DraftStep
from app.widgets import page_parts
from merging.base.errors import MergingError, ParameterError
from merging.methods import registry
from merging.methods.edits.manual import AFTER, ManualParams, resolve_params
from merging.methods.factor_rules import FactorRule, rules_text
from merging.study.runs.run import Run, read_parameters
from viz import theme

CHART_KEY = "manual_canvas"
NO_RUN = "To paint them on Masks, a stored run of the same experts is needed: run this chain first."


def draw_factors(step: DraftStep, params: ManualParams, current: Draft, experts: Mapping[str, str]) -> None:
    """Draw the factors that a step's rules yield, or nothing if a rule matches no tensor: its control reports that."""
    from viz.chart_registry import find

    facts = recipes.merged_tensors(current.pretrained)
    try:
        factors = resolve_params(params, current.experts, read_parameters(facts))
    except ParameterError:
        return
    if not factors.experts or not factors.tensors:
        return
    table = recipes.repeat_for_experts(facts, factors.experts).assign(factor=factors.values.reshape(-1))
    shown_table, options, _ = expert_names.show_names(table, {})
    figure = figures.draw_page_figure(CHART_KEY, shown_table, {"small": True, **options}, dark=False)
    st.caption(
        find(CHART_KEY).question if params.when != AFTER else "By which factor is the merged task vector multiplied?"
    )
    st.plotly_chart(
        figure, theme=None, key=f"factors{step.uid}", config=theme.config("factors"), alt=figure.layout.meta["alt"]
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            "Data (CSV)", lambda: shown_table.to_csv(index=False), "factors.csv", "text/csv",
            key=f"factors_csv{step.uid}", on_click="ignore", type="tertiary", icon=":material/table:",
        )  # fmt: skip
        if step is _find_painted_step(current):
            _draw_paint_link(params, current, experts)


def _find_painted_step(current: Draft) -> DraftStep | None:
    """The step that painting on Masks edits: the first manual step before the merge."""
    for step in current.edits:
        with suppress(ParameterError):  # the step's own controls report it
            if registry.find_edit(step.key).params is ManualParams and not step.is_after_merge():
                return step
    return None


def _draw_paint_link(params: ManualParams, current: Draft, experts: Mapping[str, str]) -> None:
    """Draw a link that opens these factors and the chain on Masks, over a stored run of the same experts."""
    chosen_experts = {name: experts[name] for name in current.experts}
    if (run := _find_run(current, chosen_experts, page_data.list_merges(page_data.stored_runs()))) is None:
        st.caption(NO_RUN)
        return
    default_rules = [FactorRule(factor=params.default)] if params.default != 1 else []
    query = {
        address.RUN: run.id, address.PAINTING: "true",
        address.PAINTED_FACTORS: rules_text([*default_rules, *params.rules]), address.CHAIN: current.chain(),
    }  # fmt: skip
    page_parts.draw_page_link(
        pages.MASKS, "Paint on Masks", "brush", **{name: value for name, value in query.items() if value}
    )


def _find_run(current: Draft, experts: Mapping[str, str], runs: Sequence[Run]) -> Run | None:
    """A stored merge of the same models, preferably with the same merge method; None if there is none."""
    matches = []
    for run in runs:
        try:
            recipe = run.recipe
        except MergingError:  # a method of another version
            continue
        if recipe and recipe.pretrained == current.pretrained and dict(recipe.experts) == experts:
            differences = run.chain != (current.merge.key,), recipe.merge.key != current.merge.key
            matches.append((*differences, len(matches), run))
    return min(matches)[-1] if matches else None

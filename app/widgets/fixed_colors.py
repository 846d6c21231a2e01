"""The options of a chart that fix colors: one color for each run, expert and task, whatever the chart draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.reading import expert_names, page_data
from app.session import run_styles
from merging.base.errors import TaskError


def fix_colors(key: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the chart ``key``, with full ordered lists in place of those of the runs and experts it draws."""
    from viz.chart_registry import find

    accepted, fixed = find(key).options, dict(options)
    if options.get("runs"):
        fixed["runs"] = run_styles.order_by_slot(list(options["runs"]))
    if "pinned" in accepted:
        fixed["pinned"] = run_styles.pins()
    for name in ("experts", "tasks"):
        if name in accepted and (full_list := list_in_order(options.get(name) or ())):
            fixed[name] = full_list
    return fixed


def list_in_order(names: Sequence[str]) -> list[str]:
    """The experts of the benchmark, then its other tasks, then names that it lacks; only the names if it has none."""
    try:
        known = [*page_data.benchmark().experts, *expert_names.data_set_titles()]
    except TaskError:
        known = []
    return list(dict.fromkeys([*known, *names] if not names or set(known) & set(names) else names))

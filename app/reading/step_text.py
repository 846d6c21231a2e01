"""The current view as a step of a lesson, for teachers who write their own."""

from __future__ import annotations

from collections.abc import Mapping

from app.reading import page_data
from app.session import address, view_state
from app.session.draft import Draft
from merging.base.errors import MergingError
from merging.base.files.plain_yaml import write_yaml
from merging.study.runs.run import Run

RUN_KEYS = (address.RUN, address.RUNS, address.RUN_B)  # keys with ids of runs, which a lesson names by aliases
OMITTED_KEYS = (
    *(address.LESSON, address.STEP, address.PROGRESS, address.ANSWERS, address.CLASS, address.NOTES, address.BENCHMARK),
    *(address.PRESENTATION, address.SINGLE_CHART, address.REPORT_TOKEN),
)
ALIASES = "abcdefghijklmnopqrstuvwxyz"


def step_yaml(query: Mapping[str, str | list[str]], chart: str) -> str:
    """YAML with the runs of the view at ``query``, by aliases, and a step that shows it, without lists of values."""
    view_query = {key: value for key, value in query.items() if isinstance(value, str) and key not in OMITTED_KEYS}
    ids = [part for key in RUN_KEYS for part in view_query.get(key, "").split(",") if part]
    alias = dict(zip(dict.fromkeys(ids), ALIASES, strict=False))
    runs = {name: recipe for run_id, name in alias.items() if (recipe := _read_chain(run_id))}
    view = {
        key: ",".join(f"@{alias[part]}" if alias.get(part) in runs else part for part in value.split(","))
        if key in RUN_KEYS
        else value
        for key, value in view_query.items()
    }
    page = view_state.relative_address().partition("?")[0]
    step = {"kind": "say", "page": page, "view": view, "chart": chart, "say": "What this view shows."}
    return write_yaml({"runs": runs, "steps": [step]})


def _read_chain(run_id: str) -> dict[str, str]:
    """The chain of a run as a lesson names it; empty for a run without a chain and for a deleted run."""
    run: Run | None = page_data.store().find(run_id)
    try:
        recipe = run.recipe if run is not None else None
    except MergingError:  # a method of another version
        recipe = None
    return {"chain": Draft.from_recipe(recipe).chain()} if recipe is not None else {}

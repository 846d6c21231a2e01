"""Facts about answers by depth, restored tokens, and the preview in the view on screen.

The reference of a run is the task's expert in domain, and the pretrained model out of domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from merging.base.errors import LessonError, StoreError
from merging.teaching.fact import PERCENT, POINTS, Fact
from merging.teaching.lesson_context import NotMeasured

if TYPE_CHECKING:
    import pandas as pd

    from merging.teaching.lesson_context import LessonContext

DEPTHS = "depths"
GROUPS = {"in": "in domain", "out": "out of domain"}
H_SCORE = "H-score"
PRETRAINED = "pretrained"


def lens(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The accuracy of the class token's answers at a depth (0 is before block 0), for the run or its reference.

    ``of`` is "run", "reference", "turns" (the share of images whose answer is the final one from that depth on) or
    "parts" (the share whose answer differs from the reference's from that depth on).
    """
    quantity = str(arguments.get("of", "run"))
    if arguments["run"] == PRETRAINED and quantity == "run":
        return _pretrained_lens_accuracy(context, arguments)
    name = quantity if quantity in ("turns", "parts") else "accuracy"
    table, notes, title = _read_depth_table(context, arguments, name)
    if name == "accuracy":
        if quantity not in ("run", "reference"):
            raise LessonError(f"of is one of run, reference, turns, parts; got {quantity!r}.")
        table = table[table["model"] == quantity]
    return _make_depth_fact(context, table, arguments, "accuracy" if name == "accuracy" else "share", notes, title)


def _pretrained_lens_accuracy(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The accuracy of the pretrained model's answers at a depth; it is every merge's reference out of domain."""
    from merging.study.analysis import measurement_store

    for run in context.merges:
        if measurement_store.find_measurement_result(DEPTHS, context.store, context.benchmark, run.id) is None:
            continue
        measured = context.find_measurement(DEPTHS, run)
        table = measured.table("accuracy")
        inside = [GROUPS["in"], *run.experts]
        table = table[(table["model"] == "reference") & ~table["over"].isin(inside)]
        return _make_depth_fact(context, table, arguments, "accuracy", measured.notes, "Pretrained")
    raise NotMeasured(
        "Answers by depth of the pretrained model are measured with those of any merge, and no merge is measured."
    )


def restored_share(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The share of images that only the run gets wrong, but gets right with another model's tokens at a depth.

    The tokens are inserted before the block of that depth. ``tokens`` are "class", "patches" or "all"; ``donor``, the
    model that they come from, is "reference" or "pretrained".
    """
    table, notes, title = _read_depth_table(context, arguments, "mended")
    for name, default in (("tokens", "class"), ("donor", "reference")):
        value = str(arguments.get(name, default))
        known = list(dict.fromkeys(table[name]))
        if value not in known:
            raise LessonError(f"{name} is one of {', '.join(known)}; got {value!r}.")
        table = table[table[name] == value]
    return _make_depth_fact(context, table, arguments, "share", notes, title)


def _read_depth_table(
    context: LessonContext, arguments: Mapping[str, Any], name: str
) -> tuple[pd.DataFrame, Mapping[str, Any], str]:
    run = context.require_run(str(arguments["run"]))
    measured = context.find_measurement(DEPTHS, run)
    return measured.table(name), measured.notes, run.name


def _make_depth_fact(
    context: LessonContext,
    table: pd.DataFrame,
    arguments: Mapping[str, Any],
    column: str,
    notes: Mapping[str, Any],
    title: str,
) -> Fact:
    over = str(arguments.get("over", "out"))
    rows = table[table["over"] == GROUPS.get(over, over)]
    if rows.empty:
        context.list_tasks(over, ())  # raises LessonError if ``over`` is unknown
        raise StoreError(f"The answers by depth hold no {over}.")
    depths = sorted(set(rows["depth"].tolist()))
    rows = rows[rows["depth"] == arguments["depth"]]
    if rows.empty:
        raise LessonError(f"depth is from {depths[0]} to {depths[-1]}; got {arguments['depth']!r}.")
    row = rows.iloc[0]
    ends = float(row["low"]), float(row["high"])
    return Fact(float(row[column]), PERCENT, *ends, int(row["n"]), str(notes["split"]), source=title)


def preview(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The preview on screen: its difference from its reference in points, or its accuracy if ``of`` is "accuracy"."""
    table = context.preview
    if table is None or not len(table):
        raise StoreError("The view shows no preview. Start one.")
    over, quantity = str(arguments["over"]), str(arguments.get("of", "difference"))
    rows = table[table["over"] == GROUPS.get(over, H_SCORE if over == "h" else over)]
    if rows.empty:
        raise StoreError(f"The preview has no {over}.")
    row = rows.iloc[0]
    if quantity == "accuracy":
        return Fact(float(row["accuracy"]), PERCENT, n=int(row["n"]), half="choosing", source="preview")
    ends = float(row["low"]), float(row["high"])
    return Fact(float(row["difference"]), POINTS, *ends, int(row["n"]), "choosing", source="preview")

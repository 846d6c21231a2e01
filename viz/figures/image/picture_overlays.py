"""Cells over one image, a grid for each model: attention, drift of patches, and the patches that an answer needs."""

from __future__ import annotations

import pandas as pd

from viz.chart import ChartError, chart, check_option, distinct_names
from viz.drawing import Picture
from viz.figure_text import plural
from viz.hover import decimal, describe_extreme, hover_texts
from viz.parts import picture_grid
from viz.parts.heat_maps import BLOCKS_PASSED, ColorScale
from viz.parts.matrix import MatrixSide

PATCH = "patch {row}, {column} (row, column)"
ROW_TITLES = {"view": "View", "block": "Block"}  # option ``by`` -> title of the rows


@chart(
    title="Where models look",
    question="Where does each model look?",
    columns=("model", "title", "block", "view", "token", "row", "column", "share"),
    optional=("weight",),
    rows=("model", "block", "view", "token"),
    empty="No model's attention to the image is known yet.",
)
def image_attention(
    table: pd.DataFrame, *, by: str = "view", picture: str = "", sentence: str = "", wide: bool = False
) -> Picture:
    """A column for each model and a row for each view of one block, or for each block in one view.

    Columns: view ("head 0", "mean of heads", "rollout": attention multiplied through the blocks so far, "contribution":
    length of what a token adds to the class token), share (of the view, sums to 1 over the tokens). For ``picture`` and
    ``wide`` see ``picture_grid.draw_model_grids``.
    """
    fixed = "block" if check_option("by", by, tuple(ROW_TITLES)) == "view" else "view"
    if table[fixed].nunique() > 1:
        raise ChartError(f"with by={by!r} the table must have one {fixed}; it has {table[fixed].nunique()}")
    names = distinct_names(table[by])
    titles = [f"block {name}" if by == "block" else name for name in names]
    token = table[table["token"] == 0]
    fig, height = picture_grid.draw_model_grids(
        table[table["token"] > 0], by, MatrixSide(ROW_TITLES[by], names, titles),
        "Model; over each grid: share on the class token", "share",
        f"<b>{{title:text 40}}</b><br>block {{block}}, {{view:text 40}}<br>{PATCH}: {{share:percent}} of the row",
        ColorScale("Share of<br>the row", log=False, percent=True), picture, wide,
        notes=dict(zip(zip(token[by].astype(str), token["model"], strict=True),
                       hover_texts(token, "{share:percent 0}"), strict=True)),
    )  # fmt: skip
    stays = token.groupby("model", sort=False).agg({"title": "first", "share": "mean"})
    known = stays.loc[[model for model in distinct_names(table["model"])[:4] if model in stays.index]]
    shares = hover_texts(known, "{share:percent 0} stay on the class token in {title:plain 40}")
    words = f"Where {plural(table['model'].nunique(), 'model')} look, {plural(len(names), 'grid')} each; on average "
    alt = f"{sentence} {words}{', '.join(shares) or 'nothing is known of the class token'}.".strip()
    return Picture(fig, alt, height, zoom_key=f"{by}:{','.join(names)}")


@chart(
    title="Drift over the image",
    question="Where on the image do patches drift?",
    columns=("model", "title", "against", "depth", "token", "row", "column", "drift"),
    optional=("mean", "high", "past", "reference"),
    rows=("model", "depth", "token"),
    empty="No run's drift on the image is known yet.",
)
def image_drift_grid(table: pd.DataFrame, *, picture: str = "", sentence: str = "", wide: bool = False) -> Picture:
    """A column for each run and a row for each depth; the drift of the class token is over each grid.

    Columns: drift (1 − cosine to the reference's token); mean, high and past as in ``image_drift``. For ``picture`` and
    ``wide`` see ``picture_grid.draw_model_grids``.
    """
    depths = [str(depth) for depth in sorted(table["depth"].astype(int).unique())]
    token, patches = table[table["token"] == 0], table[table["token"] > 0]
    fig, height = picture_grid.draw_model_grids(
        patches, "depth", MatrixSide(BLOCKS_PASSED, depths, depths),
        "Run; over each grid: drift of the class token", "drift",
        f"<b>{{title:text 40}}</b>, depth {{depth}}<br>{PATCH}: {{drift:real}} from {{against:text 40}}",
        ColorScale("Drift,<br>1 − cosine", log=False), picture, wide,
        notes=dict(zip(zip(token["depth"].astype(str), token["model"], strict=True),
                       [f"{drift:.2f}" for drift in token["drift"]], strict=True)),
    )  # fmt: skip
    models = distinct_names(table["model"])
    alt = f"{sentence} Drift of the patches of {plural(len(models), 'run')} at {plural(len(depths), 'depth')}: most, "
    alt += describe_extreme(
        patches, "drift", "{drift:real}, in row {row}, column {column} at depth {depth} of {title:plain 40}."
    )
    return Picture(fig, alt.strip(), height, zoom_key=",".join(models))


@chart(
    title="Occluding patches",
    question="Which patches does each model's answer need?",
    columns=("model", "title", "token", "row", "column", "followed", "before", "margin", "change"),
    rows=("model", "token"),
    empty="No patch has been occluded yet.",
)
def image_occlude(table: pd.DataFrame, *, picture: str = "", sentence: str = "") -> Picture:
    """A grid for each model: the change of the margin where a patch is replaced by the data set's mean patch.

    Columns: followed (the class whose margin it is), before and margin (cosine minus the largest other one), change.
    For ``picture`` see ``picture_grid.draw_model_grids``.
    """
    models = table.drop_duplicates("model")
    notes = [f"margin {before}".replace("-", "−") for before in hover_texts(models, "{before:real}")]
    fig, height = picture_grid.draw_model_grids(
        table.assign(_row=""), "_row", MatrixSide("One patch occluded", [""], ["\xa0"]), "Model", "change",
        "<b>{title:text 40}</b> without patch {row}, {column} (row, column)<br>margin of {followed:text 40}: "
        "{before:real} → {margin:real}<br>change {change:signed}",
        ColorScale("Change of<br>the margin", log=False, diverging=True), picture,
        notes={("", model): note for model, note in zip(models["model"], notes, strict=True)},
        signed=lambda change: f"+{decimal(change, 3)}" if change >= 0 else decimal(change, 3),
    )  # fmt: skip
    least = describe_extreme(
        table, "change",
        "Change of the margin of {followed:plain 40} with single patches occluded: the largest loss is {change:real}, "
        "at row {row}, column {column} of {title:plain 40}.", smallest=True,
    )  # fmt: skip
    return Picture(fig, f"{sentence} {least}".strip(), height + 40, zoom_key=",".join(models["model"]))

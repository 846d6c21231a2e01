"""Each model's answers for one image by depth, and the images that are nearest for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import chart, distinct_names
from viz.drawing import Drawing, Picture, Trace, scatter
from viz.figure_text import plural, safe_text
from viz.hover import hover_texts
from viz.parts import axes, legends, picture_grid, series
from viz.parts.heat_maps import BLOCKS_PASSED

PANELS_PER_ROW, PANEL, CAPTION, BELOW, LEFT = 2, 250, 62, 60, 64  # panels in a row; px
MAX_ANSWERS, ACCURACY_NAME = 3, "Accuracy on the data set"
GAP = 0.08  # share of the width between panels
ACCURACY_HOVER = (
    "<b>{accuracy:percent} of the data set right</b><br>Depth {depth:count}"
    "[<br>95% interval {low:percent} to {high:percent}, n = {n:count}]"
)
ANSWER_HOVER = (
    "<b>{title:text 44}</b><br>answers {class:text 30} ({probability:percent 0})<br>from depth {stays} to the end"
)
ROW_PX, TOP, BOTTOM, RIGHT = 108, 62, 16, 16  # px: a row of neighbors, and margins
NAME_LETTERS = {1: 40, 2: 28, 3: 18}  # of a class under its picture, by models; with more of them 11
PICTURE_SHARE = 0.64  # share of a row that the picture takes
NEIGHBOR_HOVER = (
    "<b>{class:text 40}</b><br>{image:text 60}<br>{title:text 40}, rank {rank}, cosine {cosine:real}"
    "[<br>{also} in another model]"
)


@chart(
    title="Answer by depth",
    question="At which depth does each model settle on its answer?",
    columns=("model", "title", "depth", "number", "class", "probability", "rank", "right", "line"),
    optional=("accuracy", "low", "high", "n"),
    rows=("model", "depth", "number"),
    picks=("class",),
    empty="No model has read the image yet.",
)
def image_lens(
    table: pd.DataFrame, *, sentence: str = "", depths: tuple[float, float] | None = None, present: bool = False
) -> Picture:
    """A panel for each model with lines for the right class, the answer and the next two; the accuracy is dashed.

    Columns: number and class, probability, rank (1: the answer there), right (whether it is the image's class), line
    (whether the class has a line). accuracy is that of the answers at this depth over the data set's images, if known.
    ``depths``, the ends of the axis, puts panels one below the other, as wide as a map of the network above them.
    """
    lines = table[table["line"].astype(bool)].groupby("class").agg({"right": "max", "probability": "max"})
    mark_styles = theme.mark_styles(
        [str(name) for name in lines.sort_values(["right", "probability"], ascending=False).index]
    )
    legend, top = legends.legend_above([*mark_styles, ACCURACY_NAME])
    models = distinct_names(table["model"])
    columns = 1 if depths else min(len(models), len(models) if present else PANELS_PER_ROW)
    across = axes.panel_domains(columns, GAP * PANELS_PER_ROW / max(columns, PANELS_PER_ROW))
    rows = [0.6 * PANEL if depths else PANEL] * -(-len(models) // columns)
    down, height = axes.stack_panels(rows, CAPTION + BELOW, top + CAPTION, BELOW)
    fig, finals = Drawing(), []
    for index, model in enumerate(models):
        model_rows = table[table["model"] == model].sort_values("depth", kind="stable")
        number = str(index + 1) if index else ""
        fig.add_traces(
            trace | {"xaxis": f"x{number}", "yaxis": f"y{number}"} for trace in _draw_lines(model_rows, mark_styles)
        )
        finals.append(_find_final_answer(model_rows))
        _lay_out(fig, number, finals[-1], across[index % columns], down[index // columns])
        if depths:
            fig.layout[f"xaxis{number}"] |= {"range": list(depths), "showgrid": True}
            fig.layout[f"yaxis{number}"]["side"] = "right"
    legends.merge_entries(fig)
    sides = axes.DEPTH_MARGINS if depths else {"l": LEFT, "r": 16}
    fig.update_layout(legend=legend, margin={**sides, "t": 0, "b": 0})
    answers = "{title:plain 40} answers {class:plain 30} ({probability:percent 0}) from depth {stays}"
    words = f"{sentence} Answers of {plural(len(models), 'model')} by depth: "
    words += "; ".join(hover_texts(pd.DataFrame(finals[:4]), answers))
    words += "." if len(models) <= 4 else f"; and {len(models) - 4} more."
    return Picture(fig, words.strip(), height, zoom_key=",".join(models))


def _draw_lines(model_rows: pd.DataFrame, mark_styles: Mapping[str, theme.MarkStyle]) -> Iterator[Trace]:
    """The lines of one panel."""
    if "accuracy" in model_rows and model_rows["accuracy"].notna().any():
        known = model_rows.drop_duplicates("depth").dropna(subset="accuracy")
        style = {"color": theme.FADED, "width": 1.6, "dash": "dash"}
        yield scatter(
            x=known["depth"].to_numpy(np.float32), y=known["accuracy"].to_numpy(np.float32), mode="lines",
            name=ACCURACY_NAME, legendgroup=ACCURACY_NAME, line=style, **series.pointer_fields(known, ACCURACY_HOVER),
        )  # fmt: skip
    first = model_rows[model_rows["rank"] <= MAX_ANSWERS].sort_values(["depth", "rank"])
    first = first.assign(words=hover_texts(first, "{rank}. {class:text 40}, {probability:percent}"))
    answers_by_depth = {depth: "<br>".join(rows["words"]) for depth, rows in first.groupby("depth")}
    model_rows = model_rows.assign(top=model_rows["depth"].map(answers_by_depth))
    hover = "<b>{class:text 40}: {probability:percent}</b><br>Depth {depth:count}:<br>{top:as_is}"
    for name, rows in model_rows[model_rows["line"].astype(bool)].groupby("class", sort=False):
        label, right = legends.legend_name(name), bool(rows["right"].any())
        yield series.marks(
            rows, "depth", "probability", mark_styles[str(name)], hover, formats={"as_is": str}, size=9 if right else 7,
            line={"width": 3.5 if right else 2}, name=f"{label} (right)" if right else label,
            legendgroup=safe_text(f"class {name}"), picks=("class",),
        )  # fmt: skip


def _find_final_answer(model_rows: pd.DataFrame) -> dict[Any, Any]:
    """A model's answer at the last depth, with the depth from which it stays."""
    first = model_rows[model_rows["rank"] == 1].sort_values("depth")
    changes = np.flatnonzero(first["number"].to_numpy() != first["number"].iloc[-1])
    return {**first.iloc[-1].to_dict(), "stays": int(first["depth"].iloc[changes.max(initial=-1) + 1])}


def _lay_out(fig: Drawing, number: str, final: dict[Any, Any], across: list[float], down: list[float]) -> None:
    """Both axes of a panel, its caption, and a line at the depth from which the answer stays."""
    last = int(final["depth"])
    is_narrow = across[1] - across[0] < 0.4  # more than ``PANELS_PER_ROW`` panels have no room for long titles
    fig.layout[f"xaxis{number}"] = {
        "title": {"text": "Depth" if is_narrow else BLOCKS_PASSED}, "range": [-0.3, last + 0.3],
        "dtick": 1 if last < 13 else 4, "showgrid": False, "domain": across, "anchor": f"y{number}",
    }  # fmt: skip
    fig.layout[f"yaxis{number}"] = {
        "title": {"text": "\xa0" if across[0] else "Probability"}, "range": [-0.02, 1.04], "tickformat": ".0%",
        "domain": down, "anchor": f"x{number}",
    }  # fmt: skip
    words, inside = hover_texts(pd.DataFrame([final]), ANSWER_HOVER)[0], f"y{number} domain"
    fig.add_annotation(theme.caption(words, 1, xref=f"x{number} domain", yref=inside, yshift=4, align="left"))
    dotted = {"color": theme.INK, "width": 1.2, "dash": "dot"}
    fig.add_shape(axes.vertical_line(final["stays"], dotted, f"x{number}", inside, layer="above"))


@chart(
    title="Neighbors",
    question="Which images are nearest for each model?",
    columns=("model", "title", "rank", "image", "class", "cosine"),
    optional=("task", "shared"),
    rows=("model", "rank"),
    picks=("class",),
    empty="No model's neighbors of the image are known yet.",
)
def image_neighbors(
    table: pd.DataFrame, *, pictures: Mapping[str, str] | None = None, sentence: str = "",
    chosen: Mapping[str, Sequence[str]] | None = None,
) -> Picture:  # fmt: skip
    """A column of pictures for each model, the nearest first, with class and cosine; thin frames mark shared images.

    Columns: rank (from 1), image (its name), class, cosine (of the features), shared (whether it is among another
    model's nearest). ``pictures`` are PNGs (data URIs) by image.
    """
    models, ranks = table.drop_duplicates("model"), sorted(int(rank) for rank in table["rank"].unique())
    shared = table["shared"].eq(True) if "shared" in table else pd.Series(False, table.index)
    caption_pattern = f"{{class:text {NAME_LETTERS.get(len(models), 11)}}}<br>{{cosine:decimal}}"
    table = table.assign(
        also=np.where(shared, "also near", ""),
        _y=table["rank"] - min(ranks),
        _words=hover_texts(table, caption_pattern),
    )
    fig = Drawing()
    for column, (_, model_rows, _) in enumerate(series.rows_by_name(table, "model", label="title")):
        fig.add_trace(scatter(
            x=np.full(len(model_rows), column, np.float32),
            y=(model_rows["_y"] + PICTURE_SHARE / 2).to_numpy(np.float32), mode="markers",
            name=safe_text(model_rows["title"].iloc[0], 40), marker={"symbol": "square", "size": 60, "opacity": 0},
            meta={"columns": {"Cosine": model_rows["cosine"].tolist()}},
            **series.pointer_fields(model_rows, NEIGHBOR_HOVER, ("class",)),
        ))  # fmt: skip
        for row in model_rows.to_dict("records"):
            picture = picture_grid.check_picture((pictures or {}).get(str(row["image"]), ""))
            is_chosen = str(row["image"]) in (chosen or {}).get("image", ())
            line = {"color": theme.ACCENT, "width": 5} if is_chosen else {"color": theme.BLUE, "width": 2}
            _add_tile(fig, (column, row["_y"]), row["_words"], picture, line if is_chosen or row["also"] else {})
    ticks: dict[str, Any] = {"ticks": "", "zeroline": False}
    fig.update_xaxes(**axes.name_axis(
        "Model; under each picture its class and cosine", models["title"].tolist(), 22, side="top", tickangle=0, **ticks
    ))  # fmt: skip
    fig.update_yaxes(**axes.name_axis(
        "Rank: 1 is the nearest", ranks, range=[len(ranks), 0],
        tickvals=[rank - min(ranks) + PICTURE_SHARE / 2 for rank in ranks], **ticks,
    ))  # fmt: skip
    fig.update_layout(showlegend=False, margin={"l": 60, "r": RIGHT, "t": TOP, "b": BOTTOM})
    nearest = table[table["rank"] == min(ranks)].drop_duplicates("model").head(4)
    first = ", ".join(hover_texts(nearest, "{class:plain 30} in {title:plain 40}"))
    alt = f"{sentence} Nearest images of {plural(len(models), 'model')}: first {first}.".strip()
    return Picture(fig, alt, TOP + BOTTOM + ROW_PX * len(ranks), zoom_key=",".join(models["model"]))


def _add_tile(fig: Drawing, cell: tuple[int, int], words: str, picture: str, frame: Mapping[str, Any]) -> None:
    """One picture at a (column, row), with words under it."""
    column, row = cell
    if picture:
        fig.add_image(
            source=picture, xref="x", yref="y", x=column, y=row + 0.04, sizex=0.9, sizey=PICTURE_SHARE - 0.04,
            xanchor="center", yanchor="top", sizing="contain", layer="below",
        )  # fmt: skip
    if frame:
        fig.add_shape(
            type="rect", x0=column - 0.46, x1=column + 0.46, y0=row + 0.01, y1=row + PICTURE_SHARE + 0.02, xref="x",
            yref="y", line=frame,
        )  # fmt: skip
    fig.add_annotation(text=words, x=column, y=row + PICTURE_SHARE, xref="x", yref="y", yanchor="top", name="class")

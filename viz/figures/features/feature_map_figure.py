"""Maps of features, a panel for each model, with the same marks for the same images (LwPTV, Figs. 7 and 11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import Names, chart, distinct_names
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, first_few, plural, safe_text
from viz.hover import hover_texts
from viz.parts import axes, legends, picture_grid, series

CAPTION, SPACE_BELOW = 40, 42  # px over a panel, and under it
SPACE_ABOVE, LEFT = 44, 34  # px between columns, and left of the first
PANEL_HEIGHTS = {1: 460, 2: 380, 3: 290}  # px: height of a panel by panels in a row
WEBGL_POINTS = 9000  # points above which browsers draw faster with WebGL than with SVG
MIN_HALF_RANGE = 1e-6
PICTURE_PX = 17  # px: the side of an image that is drawn in place of its mark
HOVER = (
    "<b>{truth:text 40}</b>, {title:text 40}<br>{label:text 40}: {predicted:text 40}<br>pretrained: {before:text 40}"
    "[<br>distance to the pretrained {distance:real}]"
)


Frame: TypeAlias = tuple[list[float], list[float]]  # the ranges of x and y


class Panel(NamedTuple):
    """One model's panel: its rows, the number of its axes ("" for the first), their ranges, and their domains."""

    rows: pd.DataFrame
    number: str
    x: list[float]
    y: list[float]
    across: list[float]
    down: list[float]


@chart(
    title="Map of features",
    question="Do data sets and classes stay apart?",
    columns=("run", "label", "image", "x", "y", "title", "truth", "predicted", "before", "group"),
    optional=("distance",),
    rows=("run", "image"),
    picks=("run", "image"),
    empty="No image is left to show: choose other data sets or classes.",
)
def feature_map(
    table: pd.DataFrame,
    *,
    kind: str = "t-SNE",
    groups: Names = None,
    notes: Mapping[str, str] | None = None,
    selected: Sequence[str] = (),
    shared: bool = False,
    frame: Frame | None = None,
    pictures: Mapping[str, str] | None = None,
    per_row: int = 2,
    present: bool = False,
) -> Picture:
    """A panel for each run, a mark for each image, colored by group.

    Columns: image (id), x, y, title (of the data set), truth, predicted and before (class names: the right one, the
    panel's model's, the pretrained model's), group (what colors stand for), distance (to the pretrained features).
    ``kind`` names the axes; ``groups`` is the full ordered list that fixes the colors; ``notes`` are texts under
    panels' names, by run; ``selected`` images get a ring in every panel; ``shared`` gives all panels one scale, for
    maps that were fit together, and ``frame`` (ranges of x and y) one on several figures. ``pictures`` by run, PNGs
    (data URIs) as large as their panel's ranges, are drawn in place of marks, which frame the images in them.
    """
    table = table.assign(_hover=hover_texts(table, HOVER))
    names, all_groups = distinct_names(table["run"]), groups or distinct_names(table["group"])
    plotted = [group for group in all_groups if (table["group"] == group).any()]
    columns = max(1, min(per_row, len(names)))
    legend, top = legends.legend_above(plotted, name_groups(table))
    rows = -(-len(names) // columns)
    inner = float(PANEL_HEIGHTS[min(columns, max(PANEL_HEIGHTS))])
    if present:
        inner = max((theme.PRESENTED_HEIGHT - top) / rows - CAPTION - SPACE_BELOW, 60)
    across = axes.panel_domains(columns, SPACE_ABOVE / 1100)
    down, height = axes.stack_panels([inner] * rows, CAPTION + SPACE_BELOW, top + CAPTION, SPACE_BELOW)
    fig, mark_styles = Drawing(), theme.mark_styles(all_groups)
    for index, name in enumerate(names):
        run_rows = table[table["run"] == name]
        domains, ranges = (
            (across[index % columns], down[index // columns]),
            frame or square_ranges(table if shared else run_rows),
        )
        panel = Panel(run_rows, str(index + 1) if index else "", *ranges, *domains)
        _add_panel(fig, panel, plotted, mark_styles, selected, framing=bool(pictures))
        lay_out_panel(fig, panel, kind, (notes or {}).get(name, ""))
        if pictures:
            _add_picture(fig, panel, pictures.get(name, ""))
    for trace in fig.data:
        trace["type"] = "scattergl" if len(table) > WEBGL_POINTS else "scatter"
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 12, "t": 0, "b": 0}, dragmode="lasso")
    labels = first_few([clean_text(label, 40) for label in table.drop_duplicates("run")["label"]], 4)
    images = plural(int(table["image"].nunique()), "image")
    alt = f"{clean_text(kind)} maps of the features of {images} in {plural(len(plotted), 'group')}: {labels}."
    return Picture(fig, alt, height, zoom_key=f"{kind}:{len(names)}:{len(table)}")


def name_groups(table: pd.DataFrame) -> str:
    """What the groups of a map's table are, the title of its legend."""
    return "Data set" if (table["group"] == table["title"]).all() else "Class"


def rows_by_group(rows: pd.DataFrame, groups: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    """Each group's rows and legend entry, which says whether it is a task or a class; see ``series.rows_by_name``."""
    column = "task" if name_groups(rows) == "Data set" else "class"
    return series.rows_by_name(rows.assign(**{column: rows["group"]}), column, groups, column)


def square_ranges(rows: pd.DataFrame) -> Frame:
    """A square range around points, as the ranges of x and y."""
    points = rows[["x", "y"]].to_numpy(np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    half = max(0.54 * float((high - low).max()), MIN_HALF_RANGE)
    x, y = ([float(middle - half), float(middle + half)] for middle in (low + high) / 2)
    return x, y


def _add_panel(
    fig: Drawing,
    panel: Panel,
    groups: list[str],
    mark_styles: Mapping[str, theme.MarkStyle],
    selected: Sequence[str],
    framing: bool = False,
) -> None:
    """Add a mark for each image, an open square if it is ``framing`` its picture, and rings around ``selected``."""
    axes: dict[str, Any] = {"xaxis": f"x{panel.number}", "yaxis": f"y{panel.number}"}
    for _, rows, entry in rows_by_group(panel.rows, groups):
        style = mark_styles[rows["group"].iloc[0]]
        style = style._replace(symbol="square-open") if framing else style
        edge = {"color": style.color, "width": 1} if framing else theme.edge(0.4)
        marks = series.marks(
            rows, "x", "y", style, "{_hover:as_is}", picks=("run", "image"), size=PICTURE_PX if framing else 6,
            formats={"as_is": str}, marker={"line": edge}, **entry, showlegend=not panel.number, **axes,
        )  # fmt: skip
        fig.add_trace(marks)
    selected_rows = panel.rows[panel.rows["image"].isin(list(selected))]
    fig.add_trace(
        series.ring(selected_rows["x"], selected_rows["y"], "Selected", 11, 2, legendgroup="Selected", **axes)
    )


def _add_picture(fig: Drawing, panel: Panel, picture: str) -> None:
    """Draw a picture as large as a panel's ranges under its marks; x and y then have the same scale."""
    if picture:
        fig.add_image(
            source=picture_grid.check_picture(picture), xref=f"x{panel.number}", yref=f"y{panel.number}",
            x=panel.x[0], y=panel.y[1], sizex=panel.x[1] - panel.x[0], sizey=panel.y[1] - panel.y[0],
            sizing="stretch", layer="below",
        )  # fmt: skip
    fig.update_layout({f"yaxis{panel.number}": {"scaleanchor": f"x{panel.number}", "constrain": "domain"}})
    fig.update_layout({f"xaxis{panel.number}": {"constrain": "domain"}})


def lay_out_panel(fig: Drawing, panel: Panel, kind: str, note: str) -> None:
    """The caption and the two axes of a panel, without numbers, which would mean nothing."""
    frame = {"showline": True, "mirror": True, "linecolor": theme.GRID, "zeroline": False}
    shared = frame | {"showticklabels": False, "ticks": "", "showgrid": False}
    ends = {"x": (panel.x, panel.across), "y": (panel.y, panel.down)}
    for axis, number, other in (("x", 1, "y"), ("y", 2, "x")):
        title = {"font": {"size": theme.SMALL_SIZE}, "standoff": 4, "text": f"{safe_text(kind)} {number}"}
        span, domain = ends[axis]
        settings = shared | {"title": title, "range": span, "domain": domain, "anchor": f"{other}{panel.number}"}
        fig.update_layout({f"{axis}axis{panel.number}": settings})
    words = f"<b>{safe_text(panel.rows['label'].iloc[0], 44)}</b>" + (f"<br>{safe_text(note, 90)}" if note else "")
    inside = {"xref": f"x{panel.number} domain", "yref": f"y{panel.number} domain"}
    fig.add_annotation(theme.caption(words, 1, **inside, align="left", name="panel"))

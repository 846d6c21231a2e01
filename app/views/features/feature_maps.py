"""Maps on the Features page: model beside model or perplexity beside perplexity, and the circled images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.reading import measurements, page_data
from app.session import address, selection
from app.session.click_errors import guarded_fragment
from app.views.features import circled_images, joint_maps, joint_tables
from app.views.features import feature_tables as feature_data
from app.views.features.feature_tables import ALL_DATA_SETS, Model
from app.widgets import chart_view, paper_line, selection_pickers, thumbnails
from app.widgets.jobs import measure_button
from merging.study.analysis.measurement_store import StoredMeasurement
from viz.figure_text import percent, plural, span

if TYPE_CHECKING:
    import pandas as pd

ALL_LABEL = "all data sets"
MAPS = (JOINT, ARROWS, ALONG, ALONE, PCA) = ("joint t-SNE", "arrows", "along the merge", "t-SNE alone", "PCA")
PERPLEXITIES, COMMON_PERPLEXITY = (5, 30, 50), 30
NO_MAPS = "t-SNE maps have not been computed for"
TSNE_CAUTION = (
    "On a t-SNE map, neither the size of a cluster nor the distance between clusters has a meaning, and maps of "
    "different models or perplexities are not comparable: each was fit separately, with the same images and seed. "
    "Trust the numbers, which are computed from the features themselves."
)
STARTED_NOTE = (
    "Each was started from its positions on the joint map, so that colors stay about where they were. Perplexity 30, "
    "seed 0."
)
PCA_NOTE = (
    "The two principal components explain {} of the variance ({}), so images that are close on the map may be far "
    "apart. They are fit on all shown models together, so positions and distances can be compared between panels."
)
COLUMN_TEXTS = {  # name in the table -> title and help
    "label": ("Model", ""),
    "silhouette": ("Silhouette", "Mean over images, cosine distance, −1 to 1."),
    "neighbors": ("Nearest neighbors", "Accuracy of the 20 nearest neighbors, leave one out, with its 95% interval."),
    "scatter": ("Scatter ratio", "tr(Sb) / tr(Sw): scatter between classes over scatter within them."),
    "zero": ("Zero-shot", "Accuracy of the frozen heads on these images, with its 95% interval."),
    "trust": ("Map's trust", "Trustworthiness: whether neighbors on the map are neighbors in the space, 0 to 1."),
    "classes": ("Classes", ""),
    "n": ("Images", ""),
}
DECIMAL_FORMATS = {"silhouette": "%.3f", "scatter": "%.3f", "trust": "%.3f"}


def pick_images(model: Model) -> str:
    """Draw the picker of one of the data sets of a model's features; returns its key, or ``ALL_DATA_SETS``."""
    titles, keys = measurements.titles_by_task(), dict.fromkeys(feature_data.read_images(model)["task"])
    keys_by_label = {ALL_LABEL: ALL_DATA_SETS} | {titles[key]: key for key in keys}
    return keys_by_label[st.selectbox("Images", keys_by_label, key=address.DATA_SET, bind=address.BIND, width=220)]


def pick_classes(task: str) -> list[str]:
    """Draw the picker of classes of one data set; returns the chosen classes, or an empty list for all."""
    if task == ALL_DATA_SETS:
        return []
    names = page_data.benchmark().find_task(task).class_names
    shown = st.multiselect(
        "Classes", names, key=address.CLASSES, bind=address.BIND, placeholder="All classes", width=320
    )
    selection_pickers.pick_selected(selection.CLASS, names, "Marked class", width=180, plural_noun="classes")
    return shown


def draw_side_by_side(models: Sequence[Model]) -> None:
    """Draw the maps of all models: together, as arrows, along a merge, or each by itself."""
    joint = joint_tables.find_joint_map(models)
    order = joint_tables.name_joint_map([model.run for model in models], models[0].measurement.key)
    opens_joint = joint is not None or (order is not None and measure_button.find_live_job(*order) is not None)
    with st.container(horizontal=True, gap="medium"):
        kind = st.segmented_control(
            "Map", MAPS, default=JOINT if opens_joint else PCA, key=address.MAP, bind=address.BIND, required=True
        )
        task = pick_images(models[0])
        perplexity = COMMON_PERPLEXITY
        if kind == ALONE:
            perplexity = st.selectbox(
                "Perplexity", PERPLEXITIES, 1, key=address.PERPLEXITY, bind=address.BIND, width=120
            )
        classes = pick_classes(task)
    if kind == ALONG:
        joint_maps.draw_along(models, task)
    elif kind == PCA:
        coordinates_by_panel, shares = feature_data.find_components(models, task)
        trust = {
            model.run.id: feature_data.compute_trustworthiness(model, task, coordinates_by_panel[model.run.id])
            for model in models
        }
        shares_in_words = " and ".join(percent(share) for share in shares)
        draw_maps(
            models, coordinates_by_panel, trust, task, classes, PCA,
            PCA_NOTE.format(percent(sum(shares)), shares_in_words),
        )  # fmt: skip
    elif kind in {JOINT, ARROWS} and joint is None:
        joint_maps.draw_missing(models)
    elif joint is not None and kind == ARROWS:
        joint_maps.draw_arrows(joint, models, task, classes)
    elif joint is not None and (kind == JOINT or (task == ALL_DATA_SETS and perplexity == COMMON_PERPLEXITY)):
        _draw_joint_maps(joint, models, task, classes, kind)
    elif stored_maps := _find_maps(models):
        models = [model for model in models if model.run.id in stored_maps]
        coordinates_by_panel = {
            m.run.id: feature_data.read_tsne_map(m, stored_maps[m.run.id], task, perplexity) for m in models
        }
        trust = {
            run_id: feature_data.read_trustworthiness(tsne, task, perplexity) for run_id, tsne in stored_maps.items()
        }
        origin = measure_button.origin_in_words(list(stored_maps.values()))
        draw_maps(
            models, coordinates_by_panel, trust, task, classes, ALONE,
            f"{TSNE_CAUTION} Perplexity {perplexity}, seed 0. {origin}",
        )  # fmt: skip


def _draw_joint_maps(
    joint: StoredMeasurement, models: Sequence[Model], task: str, classes: Sequence[str], kind: str
) -> None:
    """Draw all models' parts of the joint map with lists of images, or each model's map alone, started from it."""
    caption = joint_maps.describe_joint(joint, models)
    if kind == ALONE:
        caption = f"{TSNE_CAUTION} {STARTED_NOTE} {measure_button.origin_in_words([joint])}"
    positions = joint_tables.read_positions(joint, models, "alone" if kind == ALONE else "positions")
    trust = joint_tables.read_trust(joint, "aligned" if kind == ALONE else "trustworthiness")
    draw_maps(models, positions, trust, task, classes, kind, caption, 2 if len(models) in {2, 4} else 3)
    if kind == JOINT:
        joint_maps.draw_lists(joint, models, task, classes)


def draw_perplexities(models: Sequence[Model]) -> None:
    """Draw each model at three perplexities; a pattern on all three does not depend on the perplexity."""
    with st.container(horizontal=True, gap="medium"):
        task = pick_images(models[0])
        classes = pick_classes(task)
    if stored_maps := _find_maps(models):
        coordinates_by_panel = {
            f"{model.run.id}:perplexity {value}": feature_data.read_tsne_map(
                model, stored_maps[model.run.id], task, value
            )
            for model in models
            if model.run.id in stored_maps
            for value in PERPLEXITIES
        }
        trust = {
            f"{run_id}:perplexity {value}": feature_data.read_trustworthiness(tsne, task, value)
            for run_id, tsne in stored_maps.items()
            for value in PERPLEXITIES
        }
        draw_maps(
            [m for m in models if m.run.id in stored_maps], coordinates_by_panel, trust, task, classes, ALONE,
            TSNE_CAUTION, 3,
        )  # fmt: skip


def _find_maps(models: Sequence[Model]) -> dict[str, StoredMeasurement]:
    """{run id: stored t-SNE maps}, and a button that computes missing ones."""
    key = models[0].name_measurement(measurements.TSNE)
    results = {model.run.id: measurements.find_measurement(key, model.run.id) for model in models}
    stored_maps = {run_id: result for run_id, result in results.items() if result is not None}
    if unmapped := [model.run for model in models if model.run.id not in stored_maps]:
        measure_button.draw_missing(key, unmapped, NO_MAPS, list(stored_maps.values()))
    return stored_maps


def describe_claims(models: Sequence[Model], view: str) -> paper_line.ClaimsText:
    """The papers' claims of a view; none for images in domain, which they are not about."""
    return paper_line.ClaimsText() if models[0].in_domain else paper_line.claims_in_words(view)


@guarded_fragment
def draw_maps(
    models: Sequence[Model],
    coordinates_by_panel: Mapping[str, pd.DataFrame],
    trust: Mapping[str, float],
    task: str,
    classes: Sequence[str],
    kind: str,
    caption: str,
    per_row: int = 2,
) -> None:
    """Draw the maps, their numbers and the circled images; the lasso redraws only them.

    The keys of ``coordinates_by_panel`` and ``trust`` (trustworthiness) are run ids, with a subtitle if a model has
    several panels.
    """
    from merging.study.measurements.features import SPLIT

    coordinates_by_panel = {
        panel: coordinates for panel, coordinates in coordinates_by_panel.items() if len(coordinates)
    }
    is_shared = kind in {JOINT, PCA}
    if not coordinates_by_panel:
        st.info("There are too few images for a map of this perplexity.")
        return
    run_id, circled_names = circled_images.find_circled()
    table = feature_data.build_map_table(models, coordinates_by_panel, task, classes)
    images_on_map = dict.fromkeys(table["image"])
    circled = [image for image in circled_names if image in images_on_map]
    if (chosen_image := thumbnails.chosen_image(images_on_map, SPLIT)) and chosen_image not in circled:
        circled = [chosen_image, *circled]
    panel_notes = {name: f"trustworthiness {value:.3f}" for name, value in trust.items() if math.isfinite(value)}
    options: dict[str, Any] = {
        "kind": PCA if kind == PCA else "t-SNE",
        "groups": feature_data.list_color_groups(models[0], task),
        "notes": panel_notes,
        "selected": circled,
        "per_row": per_row,
    }
    name = f"features_{kind.lower().replace(' ', '_')}_{task}"
    on_lasso, paper_claims = circled_images.store_circled, describe_claims(models, "features/maps")
    question = feature_data.ask_about_map(models[0], task)
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.header(question, anchor=False)
        if st.toggle("Images in place of marks", key=address.PICTURES, bind=address.BIND):
            table = joint_tables.thin_images(table, is_shared)
            caption = f"Images that would cover others are left out. {caption}"
            options |= {"pictures": joint_tables.draw_panel_pictures(table, is_shared), "per_row": min(per_row, 2)}
    sample_notes, image_count = models[0].measurement.notes, plural(table["image"].nunique(), "image")
    chart_view.draw_chart(
        "feature_map", table, name=name, question_drawn=True, heading=question,
        on_click=chart_view.Gesture("lasso", on_lasso), shared=is_shared, **options, caption=caption,
        description=f"n = {image_count} of the choosing half, sampled with seed {sample_notes['seed']}. {paper_claims}",
        sources=[model.run for model in models],
    )  # fmt: skip
    paper_line.draw_claims(paper_claims, [model.run for model in models])
    draw_numbers(models, task, {} if any(":" in panel for panel in trust) else trust)  # or one has several values
    circled_images.draw_thumbnails(models, table, run_id, circled)


def draw_numbers(models: Sequence[Model], task: str, trust: Mapping[str, float]) -> None:
    """Draw the numbers, which are computed in the original feature space."""
    table = feature_data.build_numbers_table(models, task, trust)
    if not trust:
        table = table.drop(columns="trust")
    columns = {}
    for name in map(str, table):
        title, help_text = COLUMN_TEXTS[name]
        if name in DECIMAL_FORMATS:
            columns[name] = st.column_config.NumberColumn(title, help=help_text, format=DECIMAL_FORMATS[name])
        else:
            columns[name] = st.column_config.Column(title, help=help_text or None, pinned=name == "label")
    st.dataframe(table, hide_index=True, column_config=columns, alt="Separability of the classes in every model")
    notes = models[0].measurement.notes
    task_note = " Classes of different data sets count as different." if task == ALL_DATA_SETS else ""
    st.caption(
        f"Computed from the features scaled to unit length, not from the map, over all classes.{task_note} n = "
        f"{span(table['n'])} images of the choosing half, seed {notes['seed']}, balanced by class, the "
        "same for every model; features are stored in half precision. "
        f"{measure_button.origin_in_words([model.measurement for model in models])}"
    )

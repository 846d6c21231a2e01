"""Other charts of the Features page: separability by data set, distance to pretrained, saliency by component."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.reading import expert_names, page_data
from app.session import address
from app.views.features import feature_maps
from app.views.features import feature_tables as feature_data
from app.views.features.feature_tables import ALL_DATA_SETS, Model
from app.widgets import chart_view, paper_line, selection_pickers
from app.widgets.jobs import measure_button
from app.widgets.run_picker import pick_one
from merging.base.errors import CheckpointError
from merging.study.paper_facts import network_facts
from merging.study.runs.run import Run
from viz.figure_text import clean_text, span

SEPARABILITY_METRICS = {"nearest neighbors": "knn", "silhouette": "silhouette", "scatter ratio": "scatter"}


def draw_separability(models: Sequence[Model]) -> None:
    """Draw the separability of every data set, model beside model."""
    value = SEPARABILITY_METRICS[
        st.selectbox("Measured as", SEPARABILITY_METRICS, key=address.SEPARABILITY_METRIC, bind=address.BIND, width=220)
    ]
    table = feature_data.read_separability(models)
    table = table[table["task"] != ALL_DATA_SETS]
    runs = [model.run.id for model in models]
    caption = (
        "Computed from the features scaled to unit length, for each data set separately. Nearest neighbors: majority "
        "vote of the 20 nearest other images by cosine, with 95% intervals; a small class cannot win many votes. "
        f"Silhouette: by cosine. {measure_button.origin_in_words([model.measurement for model in models])}"
    )
    name = f"separability_{value}"
    paper_claims = feature_maps.describe_claims(models, "features/separability")
    chart_view.draw_chart(
        "feature_separability", table, name=name, value=value, runs=runs, caption=caption, description=paper_claims
    )
    paper_line.draw_claims(paper_claims, [model.run for model in models])


def draw_distance(models: Sequence[Model]) -> None:
    """Draw the distance of each run's features from the pretrained ones (LwPTV, Fig. 10)."""
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        task = feature_maps.pick_images(models[0])
        unit_length = st.toggle("Features of unit length", key=address.UNIT_LENGTH, bind=address.BIND)
    table = feature_data.count_distances(models, task, unit_length)
    runs = [model.run.id for model in models if not model.pretrained]
    notes = models[0].measurement.notes
    caption = (
        "L2 distance between a run's features of an image and the pretrained model's features of the same image "
        f"(LwPTV, Fig. 10, which does not name its data set). n = {span(table['n'])} images of the choosing half, seed "
        f"{notes['seed']}. Zero-shot heads depend on direction only, so features of unit length show what can change a "
        f"prediction. {measure_button.origin_in_words([model.measurement for model in models])}"
    )
    caption = "" if table.empty else caption
    paper_claims = feature_maps.describe_claims(models, "features/distance")
    chart_view.draw_chart(
        "feature_distance", table, name=f"distance_{task}", normalized=unit_length, runs=runs, caption=caption,
        description=paper_claims,
    )  # fmt: skip
    paper_line.draw_claims(paper_claims, [model.run for model in models])


def draw_saliency_by_layer_kind(runs: Sequence[Run], saliency_runs: Sequence[Run]) -> None:
    """Draw saliency by kind of layer (LwPTV, Fig. 9); ``saliency_runs`` may store the same saliency in its stead."""
    from merging.methods.shared.saliency import apply_ratio
    from merging.recipes.presets import read_settings

    if not runs:
        st.info("Choose a run above to see the saliency of the task vectors that it merges.")
        return
    run = pick_one(runs, "Task vectors of")
    try:
        saliency, _ = page_data.saliency(run, saliency_runs)
    except CheckpointError as error:
        st.info(f"The task vectors of this run cannot be measured. {page_text.safe_text(error, 600)}")
        return
    ratio, shares_masks = read_settings(run.recipe)
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        experts = list(dict.fromkeys(saliency["expert"]))
        expert = selection_pickers.pick_selected(address.EXPERT, experts, "Expert", first=experts[0], width=220)
        ratio = st.slider("Prune ratio", 0.0, 1.0, ratio, 0.01, key=address.RATIO, bind=address.BIND, width=320)
    table = apply_ratio(saliency, ratio, shares_masks)
    table = table[table["expert"] == expert]
    table = table.assign(component=network_facts.find_components(table))
    caption = (
        f"Kept are the tensors that the expert's own mask keeps at prune ratio {ratio:g}, before masks are shared. "
        "Boxes span the middle half of the tensors. Attention: all tensors of attention layers; MLP: all tensors of "
        "feed-forward layers; Other: embeddings, layer norms, convolution and projection. Computed from the run's task "
        "vectors."
    )
    paper_claims = paper_line.claims_in_words("features/saliency_by_layer_kind")
    description = f"Expert {page_text.safe_text(expert_names.expert_name(expert), 40)}. {paper_claims}"
    for key in ("feature_components", "feature_layers"):
        chart_view.draw_chart(
            key, table, name=f"{key}_{run.id[:8]}", expert=clean_text(expert, 40), caption=caption,
            description=description, sources=[run],
        )  # fmt: skip
    paper_line.draw_claims(paper_claims, [run])

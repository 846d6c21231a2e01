"""Which page draws which chart of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from merging.base.errors import MergingError

if TYPE_CHECKING:
    import plotly.graph_objects as go

VIEWS = {  # page and its view -> the charts of a run there, some of which need further settings
    "masks": "network_map saliency_matrix saliency_tensor kept_share",
    "conflicts?sign agreement": "sign_layers sign_histogram election_layers",
    "conflicts?experts against experts": "pair_matrix pair_depth",
    "conflicts?joint space of DRM": "joint_spectrum joint_energy joint_dropped joint_steps",
    "drift?by depth": "drift_depth drift_accuracy", "drift?what CAT removes": "drift_removed",
    "drift?layer by layer": "drift_layers drift_objective drift_tensor",
    "drift?put back": "revert_map drift_and_put_back first_order_map",
    "features?maps": "feature_map feature_moves", "features?separability": "feature_separability",
    "features?distance to pretrained": "feature_distance",
    "features?saliency by layer kind": "feature_components feature_layers",
    "image?answer by depth": "image_lens", "image?where it looks": "image_attention image_attention_change",
    "image?drift by patch": "image_drift image_drift_grid", "image?occlude patches": "image_occlude",
    "image?restore tokens": "image_restore", "image?neighbors": "image_neighbors",
    "image?whole data sets": "data_set_depths data_set_mended data_set_tasks",
    "learning?coefficients": "coefficient_map coefficient_steps coefficient_sums",
    "learning?loss and gain": "learning_loss entropy_loss accuracy_steps learning_arrows",
    "learning?modules": "feature_shift router_confusion routing_own routing_map routing_image",
    "learning?masks": "localization_map localization_overlap", "learning?storage": "storage_parts",
    "scores?runs": "id_ood_scatter task_accuracy storage", "compare?scores": "compare_scores",
    "compare?charts": "compare_cells compare_tensor compare_spectrum compare_distance",
    "compare?images": "compare_agreement",
}  # fmt: skip
CHART_VIEWS = {chart: place for place, charts in VIEWS.items() for chart in charts.split()}


def draw_chart(chart: str, runs: Mapping[str, str], settings: Mapping[str, Any]) -> go.Figure:
    """The chart of these runs, {key of the address: id}, on the page that draws it; ``settings`` are further keys.

    Raises MergingError, which lists the charts or the settings there are.
    """
    from app.notebook.page_view import view
    from app.reading.step_text import OMITTED_KEYS
    from app.session.address import ADDRESS
    from app.session.view_state import DISPLAY_KEYS

    if chart not in CHART_VIEWS:
        raise MergingError(f"No page draws a chart {chart!r} of a run; there are: {', '.join(CHART_VIEWS)}.")
    page, _, name = CHART_VIEWS[chart].partition("?")
    keys = [one.key for one in ADDRESS if {page.capitalize(), "All"} & {*one.pages.split(", ")}]
    keys = [key for key in keys if key not in (*DISPLAY_KEYS, *OMITTED_KEYS, *runs)]
    if unknown := [key for key in settings if key not in keys]:
        raise MergingError(f"The page {page} has no setting {unknown[0]!r}; it has: {', '.join(keys)}.")
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}
    opened = view(f"{page}?{urlencode(({f'{page}_view': name} if name else {}) | dict(runs) | texts)}")
    if missing := set(runs.values()) - {source.id for source in opened.find(chart)[1]}:
        raise MergingError(f"On {opened.address} the chart {chart} does not show run {min(missing)}.")
    return opened[chart]

"""Which page draws which chart of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from merging.base.errors import MergingError

if TYPE_CHECKING:
    import plotly.graph_objects as go

VIEWS = {  # address without a run -> the charts of a run there, of which some need further settings
    "masks": "network_map saliency_matrix saliency_tensor kept_share",
    "conflicts?conflicts_view=sign agreement": "sign_layers sign_histogram election_layers",
    "conflicts?conflicts_view=experts against experts": "pair_matrix pair_depth",
    "conflicts?conflicts_view=joint space of DRM": "joint_spectrum joint_energy joint_dropped joint_steps",
    "drift?drift_view=by depth": "drift_depth drift_accuracy",
    "drift?drift_view=layer by layer": "drift_layers drift_objective drift_tensor",
    "drift?drift_view=put back": "revert_map drift_and_put_back first_order_map",
    "drift?drift_view=what CAT removes": "drift_removed",
    "features?features_view=maps": "feature_map feature_moves",
    "features?features_view=separability": "feature_separability",
    "features?features_view=distance to pretrained": "feature_distance",
    "features?features_view=saliency by layer kind": "feature_components feature_layers",
    "image?image_view=answer by depth": "image_lens",
    "image?image_view=where it looks": "image_attention image_attention_change",
    "image?image_view=drift by patch": "image_drift image_drift_grid",
    "image?image_view=restore tokens": "image_restore image_restore_tokens",
    "image?image_view=occlude patches": "image_occlude",
    "image?image_view=neighbors": "image_neighbors",
    "image?image_view=whole data sets": "data_set_depths data_set_mended data_set_tasks",
    "learning?learning_view=coefficients": "coefficient_map coefficient_steps coefficient_sums",
    "learning?learning_view=loss and gain": "learning_loss entropy_loss accuracy_steps learning_arrows",
    "learning?learning_view=modules": "feature_shift router_confusion routing_own routing_map routing_image",
    "learning?learning_view=masks": "localization_map localization_overlap",
    "learning?learning_view=storage": "storage_parts",
    "scores?scores_view=runs": "id_ood_scatter task_accuracy storage",
    "compare?compare_view=scores": "compare_scores",
    "compare?compare_view=charts": "compare_cells compare_tensor compare_spectrum compare_distance",
    "compare?compare_view=images": "compare_agreement",
}
CHART_PAGES = {chart: place for place, charts in VIEWS.items() for chart in charts.split()}


def draw_chart(chart: str, runs: Mapping[str, str], settings: Mapping[str, Any]) -> go.Figure:
    """The chart of these runs, {key of the address: id}, on the page that draws it, at these settings.

    Raises:
        MergingError: no page draws such a chart of these runs, or has such a setting; the message lists them.
    """
    from app.notebook.page_view import view
    from app.reading.step_text import OMITTED_KEYS
    from app.session import address
    from app.session.view_state import DISPLAY_KEYS

    if chart not in CHART_PAGES:
        raise MergingError(f"No page draws a chart {chart!r} of a run; there are: {', '.join(CHART_PAGES)}.")
    page, _, query = CHART_PAGES[chart].partition("?")
    keys = [one.key for one in address.ADDRESS if {page.capitalize(), "All"} & {*one.pages.split(", ")}]
    keys = [key for key in keys if key not in (*DISPLAY_KEYS, *OMITTED_KEYS, *runs)]
    if unknown := [key for key in settings if key not in keys]:
        raise MergingError(f"The page {page} has no setting {unknown[0]!r}; it has: {', '.join(keys)}.")
    first = dict([query.split("=")]) if query else {}
    written = {key: _write_value(value) for key, value in settings.items()}
    opened = view(f"{page}?{urlencode(first | dict(runs) | written)}")
    if chart not in opened.charts:
        words = " ".join([f"The page {page} does not draw {chart} of this run at these settings.", *opened.notices])
        raise MergingError(f"{words} Its settings are: {', '.join(keys)}.")
    if missing := set(runs.values()) - set(opened.sources(chart)):
        raise MergingError(f"On {opened.address} the chart {chart} does not show run {min(missing)}.")
    return opened[chart]


def _write_value(value: Any) -> str:
    """A value as an address has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

"""The charts of an address of the app, opened in this process, without a server and without a browser."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from app.notebook import html_forms, outside_charts
from merging.base import settings
from merging.base.errors import MergingError

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from app.widgets.chart_recorder import RecordedChart

VIEWS = {  # page and its view -> the charts of a run there, some of which need further settings
    "masks": "network_map saliency_matrix saliency_tensor kept_share",
    "conflicts?sign agreement": "sign_layers sign_histogram election_layers",
    "conflicts?experts against experts": "pair_matrix pair_depth",
    "conflicts?joint space of DRM": "joint_spectrum joint_energy joint_dropped joint_steps",
    "partners?who hurts whom": "partner_losses",
    "partners?what each brings": "shapley_matrix shapley_waterfall",
    "partners?leave one out": "best_subsets",
    "conflicts?spectra": "layer_spectrum rank_depth alignment_depth alignment_accuracy",
    "conflicts?map of models": "model_map",
    "partners?what foretells it": "foretold_losses",
    "drift?by depth": "drift_depth drift_accuracy", "drift?what CAT removes": "drift_removed",
    "drift?layer by layer": "drift_layers drift_objective drift_tensor",
    "drift?model against model": "cka_depths",
    "drift?put back": "revert_map drift_and_put_back first_order_map",
    "features?maps": "feature_map feature_moves", "features?separability": "feature_separability",
    "features?distance to pretrained": "feature_distance", "compare?images": "compare_agreement",
    "features?saliency by layer kind": "feature_components feature_layers",
    "image?answer by depth": "image_lens", "image?where it looks": "image_attention image_attention_change",
    "image?drift by patch": "image_drift image_drift_grid", "image?occlude patches": "image_occlude",
    "image?restore tokens": "image_restore", "image?neighbors": "image_neighbors",
    "image?whole data sets": "data_set_depths data_set_mended data_set_tasks",
    "learning?coefficients": "coefficient_map coefficient_steps coefficient_sums",
    "learning?loss and gain": "learning_loss entropy_loss accuracy_steps learning_arrows",
    "learning?modules": "feature_shift router_confusion routing_own routing_map routing_image",
    "learning?masks": "localization_map localization_overlap", "learning?storage": "storage_parts",
    "scores?runs": "id_ood_scatter task_accuracy score_letters storage",
    "scores?corrupted images": "corrupted_accuracy",
    "scores?training": "seed_spread tuning_settings",
    "compare?scores": "compare_scores",
    "compare?charts": "compare_cells compare_tensor compare_spectrum compare_distance",
}  # fmt: skip
CHART_VIEWS = {chart: place for place, charts in VIEWS.items() for chart in charts.split()}


class View:
    """A page: the keys of its ``charts``, and ``notices`` on what it does not show. MergingError: an unknown chart."""

    def __init__(self, address: str, recorded: Sequence[RecordedChart], notices: Sequence[str]) -> None:
        self._recorded = {chart[0].key: chart for chart in recorded}
        self.address, self.notices, self.charts = address, tuple(notices), list(self._recorded)

    def __getitem__(self, key: str) -> go.Figure:
        """The figure of a chart."""
        return self.find(key)[0].draw()

    def table(self, key: str) -> pd.DataFrame:
        """The table that a chart draws."""
        return self.find(key)[0].table.copy()

    def find(self, key: str) -> RecordedChart:
        """A chart as its page draws it: table, options and caption, and the runs and sweeps in it."""
        if key not in self._recorded:
            words = f"The view {self.address} draws no chart {key!r}; its charts are:"
            raise MergingError(" ".join([words, f"{', '.join(self.charts) or 'none'}.", *self.notices]))
        return self._recorded[key]

    def __repr__(self) -> str:
        return f"View({self.address!r}, charts={self.charts})"

    def _repr_html_(self) -> str:
        return html_forms.make_page([(self[key], self.find(key)[0].caption) for key in self.charts])


def view(address: str) -> View:
    """The charts of an address from *Link*, such as "masks?run=f2fcd9a9ca4e&ratio=0.5".

    Raises MergingError if there is no such page, run or value of a control, or if the page reports an error.
    """
    caller = "mergescope.view"  # begins the messages about an address
    with run_as_app():
        from app import page_text
        from app.reading import page_data, step_text
        from app.snapshot import headless

        place, store, app = headless.parse_page_address(address, caller), page_data.store(), headless.Headless()
        named = ",".join(value for key, value in place.query if key in step_text.RUN_KEYS)
        for run_id in filter(None, named.split(",")):  # if it is missing, the page would show another run
            store.get_run(store.resolve_id(run_id))
        recorded = app.open_charts(place, caller)
        if app.refusals[place]:
            raise MergingError(app.refusals[place])
        return View(str(place), recorded, [page_text.plain_text(notice) for notice in app.notices[place]])


def _write_runs(page: str, runs: Mapping[str, str]) -> dict[str, str]:
    """The runs as the page has them in its address: Partners has the chain of the run."""
    if page != "partners":
        return dict(runs)
    with run_as_app():
        from app.reading import page_data, recipes

        recipe = page_data.store().get_run(runs["run"]).recipe
        if recipe is None or not (query := recipes.chain_query(recipe)):
            raise MergingError(f"Partners has no chain of the run {runs['run']}.")
        return query


def draw_chart(chart: str, runs: Mapping[str, str], settings: Mapping[str, Any]) -> go.Figure:
    """The chart of these runs, {key of the address: id}, on the page that draws it; ``settings`` are further keys.

    Raises MergingError, which lists the charts or the settings there are.
    """
    from app.reading.step_text import OMITTED_KEYS
    from app.session.address import ADDRESS
    from app.session.view_state import DISPLAY_KEYS

    if chart not in CHART_VIEWS:
        others = outside_charts.describe_outside()
        raise MergingError(
            f"No page draws a chart {chart!r} of a run; there are: {', '.join(CHART_VIEWS)}. {others}".rstrip()
        )
    page, _, name = CHART_VIEWS[chart].partition("?")
    bound = {one.key for one in ADDRESS if one.bound}
    keys = [one.key for one in ADDRESS if {page.capitalize(), "All"} & {*one.pages.split(", ")}]
    keys = [key for key in keys if key not in (*DISPLAY_KEYS, *OMITTED_KEYS, *runs)]
    if unknown := [key for key in settings if key not in keys]:
        raise MergingError(f"The page {page} has no setting {unknown[0]!r}; it has: {', '.join(keys)}.")
    written = {key: _write_setting(value, key in bound) for key, value in settings.items()}
    query = ({f"{page}_view": name} if name else {}) | _write_runs(page, runs) | written
    opened = view(f"{page}?{urlencode(query, doseq=True)}")
    sources = {source.id for source in opened.find(chart)[1]}  # none where the chart is of all models
    named = {*runs.values()} & {*query.values()}  # none where the page has the run's chain
    if sources and (missing := named - sources):
        raise MergingError(f"On {opened.address} the chart {chart} does not show run {min(missing)}.")
    return opened[chart]


def _write_setting(value: Any, is_bound: bool) -> Any:
    """A setting as an address has it: several values repeat the key of a control, and other keys join them."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return str(value).lower() if isinstance(value, bool) else value
    return list(value) if is_bound else ",".join(map(str, value))


@contextmanager
def run_as_app() -> Iterator[None]:
    """Run code of the app as a server on this machine would, and leave the process as it was.

    Streamlit replaces the main module, from which a notebook pickles, and warns that no server runs. Pages do not
    download, start no process in advance, and end that of previews. A server in this process keeps its own.
    Raises StoreError if there is no benchmark.
    """
    from streamlit import config, runtime

    from app import process_values, settings_file, startup

    main_module, was_disabled = sys.modules["__main__"], logging.root.manager.disable
    hub, path, is_served = os.environ.get(settings.HUB_VARIABLE), list(sys.path), runtime.exists()
    settings.check_benchmark()
    startup.skip_warm_up()
    os.environ[settings.HUB_VARIABLE] = hub or "cached"
    logging.disable(logging.WARNING)
    try:
        with settings_file.restore_settings():
            if not is_served and config.get_option("server.address") is None:
                config.set_option("server.address", "127.0.0.1")
            yield
    finally:
        from app.reading import previews  # not above, where it would log that no server runs

        if not is_served and (process := process_values.take_value(previews.preview_process)):
            process.close()
        sys.modules["__main__"], sys.path[:] = main_module, path
        logging.disable(was_disabled)
        if hub is None:
            os.environ.pop(settings.HUB_VARIABLE, None)

"""The entry of the app: ``streamlit run app/main.py`` imports it to serve it, and runs it to draw a page."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

# Streamlit puts this folder on the path; the packages are in its parent folder, before all others of these names.
if (root := str(Path(__file__).resolve().parent.parent)) != sys.path[0]:
    sys.path[:] = [root, *(folder for folder in sys.path if folder != root)]

from streamlit import cli_util, config
from streamlit.starlette import App
from streamlit.web.server.server_util import get_display_address, get_url

from app import startup
from app.guards import stack

SECTIONS = {
    "Start": [("home", "Home", "home", "What Mergescope is, and the library of runs.")],
    "Build": [
        ("merge", "Merge", "merge", "Choose experts and a chain of methods, and merge them."),
        ("mix", "Mix", "instant_mix", "Drag a slider: your browser merges the experts and answers images at once."),
    ],
    "Explore": [
        ("masks", "Masks", "grid_on", "Which layers are salient for each expert, and which the merge keeps."),
        ("conflicts", "Conflicts", "call_split", "Where experts disagree: signs, spaces, and who wins the election."),
        ("partners", "Partners", "diversity_3", "Which experts get along: who hurts whom, and which to leave out."),
        (
            "drift",
            "Drift",
            "moving",
            "How far features move from each expert's, layer by layer, and the accuracy this costs.",
        ),
        ("features", "Features", "scatter_plot", "What merging does to the features of images out of domain."),
        ("image", "Image", "image_search", "One image through several models: answers, attention, drift, restoring."),
        ("learning", "Learning", "model_training", "What merges learn from images: coefficients, masks and modules."),
    ],
    "Results": [
        ("run", "Run", "hub", "One run on one page: what the merge did, where in the network, and at what cost."),
        ("scores", "Scores", "monitoring", "Accuracy in and out of domain, run by run, task by task."),
        ("sweeps", "Sweeps", "tune", "A recipe at many values: which to use, and what it costs out of domain."),
        ("compare", "Compare", "compare", "Two runs: recipes, scores, charts with their difference, image by image."),
        ("report", "Report", "article", "Chosen views as one HTML file, with recipes, digests, seeds and versions."),
    ],
    "Learn": [
        ("lessons", "Lessons", "school", "Paths through the pages: predict, do, see, read why."),
        ("methods", "Methods", "menu_book", "What every method does, needs and costs."),
    ],
    "Library": [
        ("models", "Models & runs", "inventory_2", "Your checkpoints, whether they fit, and your runs."),
    ],
}


@asynccontextmanager
async def open_browser(_app: Any) -> AsyncIterator[None]:
    """Open the app in the browser when the server starts, unless the settings forbid it, and load slow modules.

    Active while the server runs.
    """
    if not config.get_option("server.headless"):
        option = "browser.serverAddress" if config.is_manually_set("browser.serverAddress") else "server.address"
        address = get_url(get_display_address(config.get_option(option)))
        threading.Thread(target=cli_util.open_browser, args=(address,), daemon=True).start()
    startup.load_first_modules()
    yield
    startup.end_preparing()


if __name__ == "__main__":
    from app import layout

    layout.draw_page(SECTIONS)
else:
    app = App(__file__, lifespan=open_browser, middleware=stack.middleware())

"""Image: one image through several models, and the same questions over whole data sets."""

from __future__ import annotations

from app.reading import data
from app.session import state
from app.views.image.data_sets.view import data_set_view
from app.widgets import page

page.heading("Image", "One image through several models, depth by depth.")
runs = data.runs(data.stored())
chosen, _ = state.picked_runs([run.id for run in runs], [run.id for run in runs[:2]])
data_set_view([run for run in runs if run.id in chosen])

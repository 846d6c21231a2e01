"""What a recipe would score on a sample: a button, a switch that keeps it up to date, and a picture of the changes."""

from __future__ import annotations

from merging.recipes.recipe import Recipe
from merging.runs.run import Run


def show(recipe: Recipe, reference: Run | None, key: str) -> None:
    """Draw the preview of a recipe against a run (None: the pretrained model).

    ``key`` tells the widget from others on the page. A result is drawn only for the very recipe that is given, so a
    page draws this again whenever the recipe changes, and never shows what an earlier one scored.
    """

"""Which merges can pause: those that learn."""

from __future__ import annotations

from functools import lru_cache

from merging.errors import MergingError


@lru_cache(maxsize=64)
def learns(recipe_yaml: str) -> bool:
    """Whether a recipe learns on images; False for one that cannot be read."""
    from merging.recipes.recipe import Recipe  # loads torch, which listing jobs does not need

    try:
        return bool(recipe_yaml) and Recipe.from_yaml(recipe_yaml).learns
    except MergingError:
        return False

"""Recipes of the papers' named combinations; ``combinations.py`` is the list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from merging.combinations import COMBINATIONS, Combination
from merging.errors import RecipeError, did_you_mean
from merging.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Preset(Combination):
    """A combination that makes recipes."""

    def recipe(
        self,
        pretrained: str,
        experts: Mapping[str, str],
        *,
        count_dead_params: bool = True,
        large: bool = False,
    ) -> Recipe:
        """The preset on these checkpoints, as published: with the unused text tensors that they may carry counted.

        ``large`` takes the paper's parameters for ViT-L/14 in place of those for ViT-B/32.
        """
        params = {**self.params, **self.large} if large else self.params
        return Recipe.build(
            self.merge,
            params,
            self.edits,
            pretrained,
            experts,
            self.title,
            self.exemplars,
            count_dead_params=count_dead_params,
        )


PRESETS = tuple(Preset(**vars(combination)) for combination in COMBINATIONS)


def preset(key: str) -> Preset:
    """The preset of that key; raises RecipeError with the nearest one."""
    for found in PRESETS:
        if found.key == key:
            return found
    keys = [found.key for found in PRESETS]
    raise RecipeError(f"There is no preset {key!r}.{did_you_mean(key, keys)} Known: {', '.join(keys)}.")

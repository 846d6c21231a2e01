"""Recipes of the papers' named combinations, and of the same with an edit in front.

``recipes/papers/presets.yaml`` holds the combinations and what they are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from merging.base.errors import MergingError, RecipeError
from merging.base.text import did_you_mean
from merging.methods import registry
from merging.recipes.papers.ablations import LWPTV_FAMILY, VARIANTS
from merging.recipes.papers.combinations import COMBINATIONS, LEARNED, LWPTV, ON_NETWORKS, Combination
from merging.recipes.recipe import Exemplars, Recipe

PLUGIN = LWPTV  # the edit that its paper puts in front of every merge


@dataclass(frozen=True, kw_only=True)
class Preset(Combination):
    """A combination that makes recipes."""

    def recipe(
        self,
        pretrained: str,
        experts: Mapping[str, str],
        *,
        large: bool = False,
        test_data: Mapping[str, Any] | None = None,
    ) -> Recipe:
        """The preset on these checkpoints, as published: of CLIP, counting the unused text tensors that they may carry.

        ``large`` takes the paper's parameters for ViT-L/14 in place of those for ViT-B/32. What learns without labels
        does so on images that are not scored, unless ``test_data`` says otherwise: {"split": "reporting"} is what the
        papers do.
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
            count_dead_params=not self.network,
            adapt=self.adapt,
            test_data=test_data,
        )

    def name_in_lists(self, large: bool = False) -> str:
        """The name under which lists show it, with the values of ``recipe``."""
        return name_of(self.title, lambda: {**self.params, **(self.large if large else {})})

    def with_edit(
        self, edit: tuple[str, Mapping[str, Any]] = PLUGIN, name: str = "", draw: Exemplars | None = None
    ) -> Self:
        """The preset with an edit in front. ``draw`` are the edit's exemplars, where the preset itself needs none."""
        drawn = self.exemplars if draw is None or self.recipe("", {}).exemplars else draw.values()
        return replace(
            self,
            key=f"{self.key}_{edit[0]}",
            title=f"{self.title} w/ {name or registry.find_edit(edit[0]).title}",
            edits=(edit, *self.edits),
            exemplars=drawn,
            source=f"ours, made of: {self.source}",
            note="",
        )


PRESETS = tuple(Preset(**vars(combination)) for combination in (*COMBINATIONS, *VARIANTS, *LEARNED))
NETWORK_PRESETS = tuple(Preset(**vars(combination)) for combination in ON_NETWORKS)
LEARNING = frozenset(combination.key for combination in LEARNED)  # what learns, or stands beside what does

NAMES = {one.title: one.name for one in PRESETS if one.name}


def name_of(title: str, params: Callable[[], Mapping[str, Any]]) -> str:
    """The name under which lists show what has a title; ``params`` gives the values of its merge."""
    for known, name in NAMES.items():
        if title == known or title.startswith(f"{known} w/ "):
            try:
                return name.format_map(params()) + title.removeprefix(known)
            except (MergingError, KeyError, ValueError):  # a recipe that this version cannot read
                return title
    return title


def find_preset(key: str) -> Preset:
    """The preset with that key; raises RecipeError, which names the nearest key."""
    for candidate in (*PRESETS, *NETWORK_PRESETS):
        if candidate.key == key:
            return candidate
    keys = [candidate.key for candidate in (*PRESETS, *NETWORK_PRESETS)]
    raise RecipeError(f"There is no preset {key!r}.{did_you_mean(key, keys)} Known: {', '.join(keys)}.")


def list_offered(network: str) -> tuple[Preset, ...]:
    """The presets for models of a kind of network: all for CLIP, whose title is empty.

    For another, the values reported for it come first, then the combinations that need nothing but the checkpoints.
    """
    if not network:
        return PRESETS
    own = tuple(each for each in NETWORK_PRESETS if each.network == network)
    plain = tuple(each for each in PRESETS if each.adapt is None and not each.recipe("", {"expert": ""}).needs)
    return own + plain


def bases(edit: str) -> list[Preset]:
    """The presets that an edit can be put in front of.

    Left out are presets that contain it already, and those that such a combination is compared with: presets with
    ``PLUGIN`` in front, and its family's variants. So are those of ``LEARNING``, which take minutes each.
    """
    return [
        base
        for base in PRESETS
        if base.key not in LEARNING
        and edit not in {key for key, _ in base.edits}
        and not (base.edits and base.key in LWPTV_FAMILY.keys)
        and base.edits[:1] != (PLUGIN,)
    ]


def refusal(preset: Preset) -> str:
    """Why a preset's chain makes no sense; empty if it makes sense."""
    try:
        preset.recipe("", {})
    except RecipeError as error:
        return str(error)
    return ""


def partners() -> list[Preset]:
    """Every base with ``PLUGIN`` in front that makes sense and is no preset already."""
    keys = {preset.key for preset in PRESETS}
    plugged = [base.with_edit() for base in bases(PLUGIN[0])]
    return [partner for partner in plugged if partner.key not in keys and not refusal(partner)]


class Settings(NamedTuple):
    """What decides which tensors are kept, apart from their saliency; the defaults are the papers'."""

    prune_ratio: float = 0.7
    shared: bool = True


def settings_of(recipe: Recipe | None) -> Settings:
    """The settings of a recipe's first edit that prunes by saliency, the papers' if there is none."""
    for step in recipe.edits if recipe else ():
        values = step.params.values()
        if values.keys() >= set(Settings._fields):
            return Settings(**{name: values[name] for name in Settings._fields})
    return Settings()

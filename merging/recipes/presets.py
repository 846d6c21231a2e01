"""Recipes of the papers' named combinations, and of these combinations with a further edit in front.

``recipes/papers/presets.yaml`` holds the combinations and their comparisons.
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

PLUGIN = LWPTV  # the edit that the LwPTV paper puts in front of every merge


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
        """The preset on these checkpoints as published; for CLIP it counts unused text tensors in the checkpoints.

        ``large`` takes the paper's parameters for ViT-L/14 in place of those for ViT-B/32. Methods that learn without
        labels do so on images that are not scored. Papers learn on the scored images: ``test_data`` =
        {"split": "reporting"}.
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
        """The preset's name in lists, with the values of ``recipe``."""
        return name_of(self.title, lambda: {**self.params, **(self.large if large else {})})

    def with_edit(
        self, edit: tuple[str, Mapping[str, Any]] = PLUGIN, name: str = "", exemplars: Exemplars | None = None
    ) -> Self:
        """The preset with an edit in front. ``exemplars`` are the edit's, used if the preset itself needs none."""
        values = self.exemplars if exemplars is None or self.recipe("", {}).exemplars else exemplars.values()
        return replace(
            self,
            key=f"{self.key}_{edit[0]}",
            title=f"{self.title} w/ {name or registry.find_edit(edit[0]).title}",
            edits=(edit, *self.edits),
            exemplars=values,
            source=f"ours, made of: {self.source}",
            note="",
        )


PRESETS = tuple(Preset(**vars(combination)) for combination in (*COMBINATIONS, *VARIANTS, *LEARNED))
NETWORK_PRESETS = tuple(Preset(**vars(combination)) for combination in ON_NETWORKS)
LEARNING = frozenset(combination.key for combination in LEARNED)  # keys of presets that learn, and of those to compare

NAMES = {preset.title: preset.name for preset in PRESETS if preset.name}  # title -> name in lists


def name_of(title: str, params: Callable[[], Mapping[str, Any]]) -> str:
    """The name in lists of a recipe with a title; ``params`` returns the values of its merge."""
    for known, name in NAMES.items():
        if title == known or title.startswith(f"{known} w/ "):
            try:
                return name.format_map(params()) + title.removeprefix(known)
            except (MergingError, KeyError, ValueError):  # a recipe that this version cannot read
                return title
    return title


def find_preset(key: str) -> Preset:
    """The preset with a key. Raises RecipeError, which names the nearest key."""
    for candidate in (*PRESETS, *NETWORK_PRESETS):
        if candidate.key == key:
            return candidate
    keys = [candidate.key for candidate in (*PRESETS, *NETWORK_PRESETS)]
    raise RecipeError(f"There is no preset {key!r}.{did_you_mean(key, keys)} Known: {', '.join(keys)}.")


def list_offered(network: str) -> tuple[Preset, ...]:
    """The presets for models of a kind of network, by its title; all presets for CLIP, whose title is empty.

    For another network, presets reported for it come first, then those that need only checkpoints.
    """
    if not network:
        return PRESETS
    reported = tuple(preset for preset in NETWORK_PRESETS if preset.network == network)
    general = tuple(
        preset for preset in PRESETS if preset.adapt is None and not preset.recipe("", {"expert": ""}).needs
    )
    return reported + general


def list_bases(edit: str) -> list[Preset]:
    """The presets that an edit can be put in front of.

    Presets that already contain the edit are left out. So are presets with ``PLUGIN`` in front and the variants of its
    ablation, and the presets of ``LEARNING``, which take minutes each.
    """
    return [
        base
        for base in PRESETS
        if base.key not in LEARNING
        and edit not in {key for key, _ in base.edits}
        and not (base.edits and base.key in LWPTV_FAMILY.keys)
        and base.edits[:1] != (PLUGIN,)
    ]


def explain_refusal(preset: Preset) -> str:
    """The reason why a preset's chain is meaningless; empty if it is valid."""
    try:
        preset.recipe("", {})
    except RecipeError as error:
        return str(error)
    return ""


def list_partners() -> list[Preset]:
    """Every valid combination of ``PLUGIN`` and a preset behind it (a base) that is not yet a preset."""
    keys = {preset.key for preset in PRESETS}
    plugged = [base.with_edit() for base in list_bases(PLUGIN[0])]
    return [partner for partner in plugged if partner.key not in keys and not explain_refusal(partner)]


class Settings(NamedTuple):
    """The settings that, with the saliency, decide which tensors are pruned; the defaults are the papers'."""

    prune_ratio: float = 0.7  # the share of tensors that each expert drops
    shared: bool = True  # whether all experts keep every tensor that one of them keeps


def read_settings(recipe: Recipe | None) -> Settings:
    """The settings of a recipe's first edit that prunes by saliency; the papers' if there is none."""
    for step in recipe.edits if recipe else ():
        values = step.params.values()
        if values.keys() >= set(Settings._fields):
            return Settings(**{name: values[name] for name in Settings._fields})
    return Settings()

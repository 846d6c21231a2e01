"""A recipe with one layer changed: reset to pretrained, scaled, or restricted to one expert.

Resetting and scaling multiply the layer's merged task vector after the merge, so no other tensor changes. Restricting
works before the merge: in this layer, it sets the task vectors of all other experts to zero.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from merging.base.errors import RecipeError
from merging.methods import registry
from merging.methods.edits.manual import AFTER, BEFORE, MERGED, ManualParams
from merging.methods.factor_rules import MAX_FACTOR, FactorRule, resolve
from merging.methods.simplify_factors import simplify
from merging.models.families import EMBEDDINGS, OUTPUT, UNMERGED, Parameter
from merging.recipes import chain_rules
from merging.recipes.recipe import Recipe
from merging.recipes.step import Step

# The extents of a chosen layer: the tensor alone, its section, the layer in all blocks, or all tensors of its role.
TENSOR, BLOCK, LAYER, ROLE = "tensor", "block", "layer", "kind"
MANUAL = "manual"  # the key of the edit that multiplies task vectors by the factors of rules


@dataclass(frozen=True, slots=True)
class ChosenLayer:
    """A tensor, its whole section, its layer in all blocks, or all tensors of its role, as ``extent`` states.

    A section is a block ("block 3"), the embeddings or the output. ``part`` is the layer's name in its block; names of
    tensors need not contain it.
    """

    tensor: str
    section: str
    role: str
    extent: str = TENSOR
    part: str = ""

    def rule(self, factor: float, parameters: Sequence[Parameter], experts: Sequence[str] = ()) -> FactorRule:
        """The rule that gives the layer, a layer of the ``parameters``, this factor."""
        selection: dict[str, tuple[str, ...]] = {"tensors": (glob.escape(self.tensor),)}
        if self.extent == ROLE:
            selection = {"roles": (self.role,)}
        elif self.extent == LAYER:
            names = [p.name for p in parameters if p.part == self.part and p.role not in UNMERGED]
            selection = {"tensors": tuple(map(glob.escape, names or [self.tensor]))}
        elif self.extent == BLOCK and self.section in (EMBEDDINGS, OUTPUT):
            selection = {"sections": (self.section,)}
        elif self.extent == BLOCK:
            selection = {"blocks": (self.section.removeprefix("block "),)}
        return FactorRule(factor=factor, experts=tuple(experts), **selection)


def scale_layer(
    recipe: Recipe, layer: ChosenLayer, factor: float, parameters: Sequence[Parameter], title: str = ""
) -> Recipe:
    """The recipe with the layer's merged task vector multiplied by ``factor`` after the merge; 0 resets the layer.

    If the recipe already edits the merged task vector, that edit and this one become one step.
    ``parameters`` are those of the pretrained model.

    Raises:
        ParameterError: the layer is not among the parameters, or a factor exceeds the limits of the manual edit.
    """
    step, before = _split_last_edit(recipe)
    rule = layer.rule(factor, parameters)
    matches = resolve([rule], 1.0, [MERGED], parameters)  # its ``rules`` are 1 for tensors of the layer, else 0
    if step is None:
        rules: tuple[FactorRule, ...] = (rule,)
    else:
        factors = resolve(step.params.rules, step.params.default, [MERGED], parameters).values  # type: ignore[attr-defined]
        rules = simplify(np.where(matches.rules == 1, factors * factor, factors), [MERGED], parameters)
    return replace(recipe, edits=(*before, _build_manual_step(rules, AFTER)), title=title)


def restrict_to_expert(
    recipe: Recipe, layer: ChosenLayer, expert: str, parameters: Sequence[Parameter], title: str = ""
) -> Recipe:
    """The recipe whose merge takes only this expert's task vector in the layer, times ``single_factor``.

    The factor is at most ``MAX_FACTOR``; with a merge that would need more, the layer gets only a part of the expert's
    change.

    With merges that sum, the layer then has the expert's own weights. With others it has their result for one expert,
    and merges with a threshold over all scalars also change other tensors. Scalars that an earlier edit prunes stay
    pretrained. ``parameters`` are those of the pretrained model.

    Raises:
        RecipeError: the recipe does not merge this expert, or merges several checkpoints of an expert.
    """
    names = [name for name, _ in recipe.experts]
    if expert not in names:
        raise RecipeError(f"The recipe does not merge {expert!r}.")
    step, before = _split_last_edit(recipe)
    chain_rules.refuse_several_checkpoints([(registry.find_edit(MANUAL), ManualParams())], names)
    rules = [layer.rule(min(single_factor(recipe), MAX_FACTOR), parameters, [expert])]
    if other_experts := [name for name in names if name != expert]:
        rules.insert(0, layer.rule(0.0, parameters, other_experts))  # sets their task vectors in the layer to zero
    after = () if step is None else (step,)
    return replace(recipe, edits=(*before, _build_manual_step(tuple(rules), BEFORE), *after), title=title)


def single_factor(recipe: Recipe) -> float:
    """The factor on one task vector for which the merge of it with zeros is the task vector itself.

    It is 1 / λ for merges that use a scaling coefficient λ, K for the mean of K experts, and 1 for all other merges.
    """
    values = recipe.merge.params.effective_values()
    scaling = values.get("scaling")
    if recipe.merge.key == "weight_averaging" or values.get("across") == "mean_of_tasks":
        return float(len(recipe.experts))
    return 1 / float(scaling) if scaling else 1.0


def _split_last_edit(recipe: Recipe) -> tuple[Step | None, tuple[Step, ...]]:
    """The step that edits the merged task vector (None if there is none), and the edits before it."""
    last = recipe.edits[-1] if recipe.edits else None
    if last is not None and registry.find_edit(last.key).after_merge(last.params):
        return last, recipe.edits[:-1]
    return None, recipe.edits


def _build_manual_step(rules: Sequence[FactorRule], when: str) -> Step:
    return Step(MANUAL, registry.find_edit(MANUAL).params.build({"rules": list(rules), "when": when}, MANUAL))

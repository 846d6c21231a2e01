"""Reads a config of mergekit as a recipe with the same result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from merging.base.errors import ParameterError, RecipeError
from merging.base.text import printable
from merging.methods.split_qkv import SPLIT_QKV
from merging.models.model_references import BUNDLED_PREFIXES, HUB_PREFIX
from merging.recipes.mergekit.config import NOUN, MergekitConfig, parse_config
from merging.recipes.mergekit.merge_methods import (
    BY_RANK,
    EQUAL_BELOW,
    LARGEST,
    LEAST_NORM,
    MIDDLING,
    RANDOM,
)
from merging.recipes.mergekit.settings import ConfigValues, NetworkTensor, write_rules
from merging.recipes.recipe import Recipe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

FILE_ENDING = re.compile(r"\.(?:safetensors|pth?|bin|ckpt|npz|pkl|json)$")
MAX_SCALING = 1000.0  # of a merge's scaling coefficient
Step = tuple[str, dict[str, Any]]
TensorReader = Callable[[str], Sequence[NetworkTensor]]


def read_mergekit(
    text: str,
    read_tensors: TensorReader,
    find_reference: Callable[[str], str] = str,
    pretrained: str = "",
    **recipe_fields: Any,
) -> Recipe:
    """The recipe that merges as mergekit does with the config in ``text``.

    ``read_tensors`` returns the tensors of the model with a reference. ``find_reference`` turns a model of the config
    into a reference of a recipe. Where the config has no base model, the task vectors start from ``pretrained``, or
    else from the first model; the result is the same up to rounding. ``recipe_fields`` are further fields of a recipe,
    such as its title.

    Raises:
        RecipeError: not a config, or one that no recipe can express; names the key and what to do.
    """
    config = parse_config(text)
    origin = _choose_origin(config, pretrained, find_reference)
    experts = _name_experts(_list_experts(config), find_reference)
    settings = ConfigValues(config, read_tensors(origin))
    reading = _Reading(config, settings, tuple(experts), is_split=has_separate_qkv(settings.tensors))
    edits, merge = reading.steps()
    try:
        recipe = Recipe.build(merge[0], merge[1], edits, origin, experts, **recipe_fields)
    except ParameterError as error:
        raise RecipeError(f"The {NOUN} has values of {config.method} that cannot be run here: {error}") from None
    return replace(recipe, unused=(*recipe.unused, *reading.notes()))


def _choose_origin(config: MergekitConfig, pretrained: str, find_reference: Callable[[str], str]) -> str:
    """The reference of the pretrained model. Raises RecipeError if another one is stated besides the base model."""
    base = find_reference(config.base) if config.base else ""
    if pretrained and base and pretrained != base and config.method not in ("slerp", "karcher"):
        raise RecipeError(
            f"The {NOUN} has the base_model {printable(config.base)}, and the merge starts from "
            f"{printable(pretrained)}; name the same pretrained model in both."
        )
    return pretrained or base or find_reference(config.models[0][0])


def _list_experts(config: MergekitConfig) -> list[str]:
    """The references of the models that become experts, as the config writes them."""
    if config.method == "slerp":
        return [config.base, *config.others]
    if config.method == "karcher" and config.base:  # mergekit averages over the base model, too, which it lists last
        listed = [reference for reference, _ in config.models]
        return listed if config.base in listed else [*listed, config.base]
    return list(config.others)


def _name_experts(references: Sequence[str], find_reference: Callable[[str], str]) -> dict[str, str]:
    """{name: reference}; a name is the last part of what the config writes, with a number if several are equal."""
    experts: dict[str, str] = {}
    for written in references:
        bare = written.removeprefix(next((p for p in BUNDLED_PREFIXES if written.startswith(p)), ""))
        bare = bare.removeprefix(HUB_PREFIX).partition("@")[0].rstrip("/\\")
        stem = FILE_ENDING.sub("", re.split(r"[/\\]", bare)[-1]) or "expert"
        names = [stem, *(f"{stem}-{number}" for number in range(2, len(references) + 2))]
        experts[next(name for name in names if name not in experts)] = find_reference(written)
    return experts


def has_separate_qkv(tensors: Sequence[NetworkTensor]) -> bool:
    """Whether a model's file has query, key and value of some layer as separate tensors."""
    return any(len(tensor.stored) > 1 for tensor in tensors)


def _farthest(positions: Values) -> float:
    """The position that lies farthest outside of [0, 1]."""
    return float(max(positions.flat, key=lambda position: abs(position - 0.5)))


@dataclass(frozen=True)
class _Reading:
    """A config that is being read: its settings, and the names of the experts in the recipe."""

    config: MergekitConfig
    settings: ConfigValues
    experts: tuple[str, ...]
    is_split: bool

    def steps(self) -> tuple[list[Step], Step]:
        """The edits and the merge."""
        if self.config.rule.sums:
            return self._sum()
        return {
            "linear": self._linear,
            "slerp": self._slerp,
            "nuslerp": self._nuslerp,
            "karcher": self._karcher,
            "model_stock": self._model_stock,
            "sce": self._sce,
        }[self.config.method]()

    def notes(self) -> list[str]:
        """Sentences on settings that have no effect, and on what differs from mergekit."""
        rule, notes = self.config.rule, []
        stated = {name for _, parameters in self.config.models for name in parameters} | set(self.config.parameters)
        for name in sorted(stated & set(rule.idle) - {"int8_mask"}):
            notes.append(f"{name} has no effect in {self.config.method} of mergekit, so it is not used.")
        if self.config.dtype not in ("", "float32"):
            notes.append(
                f"dtype {self.config.dtype} is not used: tensors are merged in float32, and stored in the dtype of the "
                "pretrained model."
            )
        if rule.sparsity in (RANDOM, BY_RANK):
            notes.append("mergekit drops other scalars at random, with the same probabilities.")
        return notes

    # --- sums of task vectors ------------------------------------------------------------------------------------

    def _sum(self) -> tuple[list[Step], Step]:
        """Sparsify, weigh, perhaps elect a sign, add up, perhaps divide by the weights, scale."""
        weights = self.settings.by_model("weight", self.config.others)
        scale, normalize = self.settings.read_common("lambda"), self.settings.flag("normalize")
        edits = self._sparsify()
        if not self.config.rule.elects:
            return self._add(edits, weights, scale, normalize)
        return self._add_elected(edits, weights, scale, normalize)

    def _sparsify(self) -> list[Step]:
        """The edit that makes task vectors sparse; none if every density is 1."""
        sparsity, rescale = self.config.rule.sparsity, self.settings.flag("rescale")
        if not sparsity:
            return []
        densities = self.settings.by_model("density", self.config.others)
        if densities.min() < 0:
            raise RecipeError(f"In the {NOUN}, density is a share from 0 to 1; got {densities.min():g}.")
        densities = densities.clip(max=1.0)
        if densities.min() == 1.0:
            return []
        if sparsity == BY_RANK:
            return [("della", self._della(densities, rescale))]
        if sparsity == RANDOM:
            rates = self._share("drop_rate", "rates", 1.0 - densities)
            return [("dare", {**rates, "rescale": rescale, **({"rescale_by": "l1"} if rescale else {})})]
        gamma = self.settings.number("gamma", self._by_model("gamma")) if sparsity == MIDDLING else 0.0
        if not 0 <= gamma <= 1:
            raise RecipeError(f"In the {NOUN}, gamma is a share from 0 to 1; got {gamma:g}.")
        params = {**self._share("density", "densities", densities), "gamma": gamma, "at_least_one": sparsity == LARGEST}
        return [("breadcrumbs", {**params, "rescale_by": "l1" if rescale else "none", **self._split()})]

    def _della(self, densities: Values, rescale: bool) -> dict[str, Any]:
        """The parameters of della, which has one density and one epsilon."""
        density = self.settings.number("density", densities)
        epsilon = self.settings.number("epsilon", self._by_model("epsilon"))
        if density and not (epsilon >= 0 and density - epsilon > 0 and density + epsilon < 1):
            raise RecipeError(
                f"In the {NOUN}, density {density:g} and epsilon {epsilon:g}: density plus or minus epsilon must lie "
                "between 0 and 1, as mergekit requires."
            )
        return {"density": density, "epsilon": epsilon, "rescale_by": "l1" if rescale else "none"}

    def _add(self, edits: list[Step], weights: Values, scale: Values, normalize: bool) -> tuple[list[Step], Step]:
        """A weighted sum of the task vectors."""
        if normalize:
            total = weights.sum(axis=0, keepdims=True)
            total[abs(total) < 1e-8] = 1.0
            weights = weights / total
        return self._weigh(edits, weights * scale)

    def _weigh(self, edits: list[Step], weights: Values) -> tuple[list[Step], Step]:
        """The sum of task vectors times these weights, as a merge alone if the weights are equal."""
        import numpy as np

        value = float(weights.flat[0])
        if np.ptp(weights) == 0 and 0 <= value <= MAX_SCALING:
            return edits, ("task_arithmetic", {"scaling": value})
        rules = self._write_rules("weight", weights)
        return [*edits, ("manual", {"rules": rules})], ("task_arithmetic", {"scaling": 1.0})

    def _add_elected(
        self, edits: list[Step], weights: Values, scale: Values, normalize: bool
    ) -> tuple[list[Step], Step]:
        """The sum or weighted mean of the scalars with the elected sign."""
        import numpy as np

        params: dict[str, Any] = {
            "density": 1.0, "aggregation": "mean" if normalize else "sum", "scaling": 1.0, "zero_votes": "plus",
        }  # fmt: skip
        if np.ptp(weights) == 0 and weights.flat[0] > 0:  # no effect on the election, and in a mean none at all
            scale = scale if normalize else scale * weights.flat[0]
        else:
            params["weights"] = self._write_rules("weight", weights)
        value = float(scale.flat[0])
        if np.ptp(scale) == 0 and 0 <= value <= MAX_SCALING:
            return edits, ("ties", {**params, "scaling": value})
        rules = write_rules("lambda", scale, [], self.settings.tensors)
        return [*edits, ("manual", {"rules": rules, "when": "after"})], ("ties", params)

    # --- the other methods ---------------------------------------------------------------------------------------

    def _linear(self) -> tuple[list[Step], Step]:
        """A weighted mean of the models; the base model counts if it has a weight."""
        references = [*self.config.others, *([self.config.base] if self.config.base else [])]
        weights = self.settings.by_model("weight", references)
        total = weights.sum(axis=0, keepdims=True)
        if not self.settings.flag("normalize") and abs(total - 1.0).max() > 1e-6:
            raise RecipeError(
                f"In the {NOUN}, the weights of linear add up to {float(total.flat[0]):g} without normalize, which "
                "also scales the pretrained weights; choose weights that add up to 1, or normalize: true."
            )
        if abs(total).min() < 1e-8:
            raise RecipeError(f"In the {NOUN}, the weights of linear add up to 0, so there is no mean; change them.")
        return self._weigh([], (weights / total)[: len(self.config.others)])

    def _slerp(self) -> tuple[list[Step], Step]:
        positions = self.settings.read_common("t")
        if positions.min() < 0 or positions.max() > 1:
            raise RecipeError(f"In the {NOUN}, t is a position from 0 to 1; got {_farthest(positions):g}.")
        if positions.min() == positions.max():
            return [], ("slerp", {"t": float(positions.flat[0]), **self._split()})
        rules = write_rules("t", positions, [], self.settings.tensors)
        return [], ("slerp", {"t": 1.0, "positions": rules, **self._split()})

    def _nuslerp(self) -> tuple[list[Step], Step]:
        first, second = self.settings.by_model("weight", self.config.others)
        total = first + second
        total[abs(total) < 1e-6] = float("inf")
        position = self.settings.number("weight", (second / total).reshape(1, -1) + 0.5 * (total == float("inf")))
        vectors = "columns" if self.settings.flag("nuslerp_row_wise") else "rows"
        params = {"t": position, "vectors": "tensor" if self.settings.flag("nuslerp_flatten") else vectors}
        between = "task_vectors" if self.config.base else "weights"
        return [], ("nuslerp", {**params, "between": between, **self._split()})

    def _karcher(self) -> tuple[list[Step], Step]:
        steps = self.settings.number("max_iter")
        if steps != int(steps):
            raise RecipeError(f"In the {NOUN}, max_iter is a whole number; got {steps:g}.")
        return [], ("karcher", {"steps": int(steps), "tolerance": self.settings.number("tol"), **self._split()})

    def _model_stock(self) -> tuple[list[Step], Step]:
        self.settings.flag("filter_wise")
        return [], ("model_stock", {"signed": True, "least_norm": LEAST_NORM, **self._split()})

    def _sce(self) -> tuple[list[Step], Step]:
        density = self.settings.number("select_topk")
        if not 0 < density <= 1 or (density < 1 and len(self.experts) == 1):
            raise RecipeError(
                f"In the {NOUN}, select_topk is {density:g}, by which sce of mergekit keeps nothing; choose a share "
                "above 0, and 1 for a single model."
            )
        return [], ("sce", {"density": density, "equal_below": EQUAL_BELOW, **self._split()})

    # --- parameters ----------------------------------------------------------------------------------------------

    def _by_model(self, name: str) -> Values:
        return self.settings.by_model(name, self.config.others)

    def _split(self) -> Mapping[str, bool]:
        """The parameter that treats query, key and value as three tensors, as the file does."""
        return {SPLIT_QKV: True} if self.is_split else {}

    def _share(self, name: str, factors: str, values: Values) -> dict[str, Any]:
        """A share as one number, or as the number 1 with factors by expert and tensor."""
        import numpy as np

        if np.ptp(values) == 0 and values.flat[0] > 0:
            return {name: float(values.flat[0])}
        return {name: 1.0, factors: self._write_rules(name, values)}

    def _write_rules(self, name: str, values: Values) -> list[dict[str, Any]]:
        return write_rules(name, values, self.experts, self.settings.tensors)

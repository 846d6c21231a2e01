"""Writes a recipe as a config with which mergekit merges to the same result, or says why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from merging.base.errors import RecipeError
from merging.base.files.plain_yaml import write_yaml
from merging.methods.factor_rules import FactorRule, resolve
from merging.methods.split_qkv import SPLIT_QKV
from merging.models.families import UNMERGED
from merging.models.model_references import HUB_PREFIX
from merging.models.task_checkpoints import group_by_task
from merging.recipes.mergekit.merge_methods import BY_RANK, EQUAL_BELOW, LARGEST, LEAST_NORM, MIDDLING, RANDOM
from merging.recipes.mergekit.reading import has_separate_qkv
from merging.recipes.mergekit.settings import NetworkTensor
from merging.recipes.recipe import Recipe
from merging.recipes.step import Step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]  # (K, L): of every expert and merged tensor

SUM_METHODS = {"": "task_arithmetic", RANDOM: "dare_linear", MIDDLING: "breadcrumbs", BY_RANK: "della_linear"}
ELECTING = {"": "ties", LARGEST: "ties", RANDOM: "dare_ties", MIDDLING: "breadcrumbs_ties", BY_RANK: "della"}
HEADER = "# Written by Mergescope for mergekit 0.1.5."
DRAWN = "# mergekit drops other scalars at random, with the same probabilities."


def write_mergekit(recipe: Recipe, tensors: Sequence[NetworkTensor], out_dtype: str = "") -> str:
    """The config as YAML; ``tensors`` are those of the pretrained model, ``out_dtype`` the dtype of its tensors.

    Raises:
        RecipeError: mergekit has nothing that gives the same result; names the step and why.
    """
    writing = _Writing(recipe, [tensor for tensor in tensors if tensor.parameter.role not in UNMERGED])
    config = writing.config()
    dtypes = {"dtype": "float32", **({"out_dtype": out_dtype} if out_dtype not in ("", "float32") else {})}
    comments = [HEADER, *([DRAWN] if writing.sparsity in (RANDOM, BY_RANK) else [])]
    return "\n".join([*comments, write_yaml({**config, **dtypes})])


def _refuse(step: Step, reason: str) -> RecipeError:
    return RecipeError(f"mergekit cannot express {step.text()}: {reason}.")


class _Writing:
    """A recipe that is being written: the weights, scales and densities that its edits add up to."""

    def __init__(self, recipe: Recipe, tensors: Sequence[NetworkTensor]) -> None:
        import numpy as np

        self.recipe, self.tensors = recipe, tensors
        self.experts = [name for name, _ in recipe.experts]
        self.parameters = [tensor.parameter for tensor in tensors]
        shape = (len(self.experts), len(tensors))
        self.weights, self.scale, self.densities = np.ones(shape), np.ones((1, shape[1])), np.ones(shape)
        self.sparsity, self.sparse_params = "", dict[str, Any]()

    def config(self) -> dict[str, Any]:
        """The config as plain data."""
        if self.recipe.adapt is not None:
            raise _refuse(self.recipe.adapt, "it has no modules on top of a merged model")
        for step in self.recipe.edits:
            self._take_edit(step)
        merge = self.recipe.merge
        writers: dict[str, Callable[[Step], dict[str, Any]]] = {
            "task_arithmetic": self._sum, "weight_averaging": self._sum, "ties": self._ties, "sce": self._sce,
            "model_stock": self._model_stock, "slerp": self._slerp, "nuslerp": self._nuslerp, "karcher": self._karcher,
        }  # fmt: skip
        if merge.key not in writers:
            raise _refuse(merge, "it has no such method")
        sums = ("task_arithmetic", "weight_averaging", "ties")
        if self.recipe.edits and merge.key not in sums:
            raise _refuse(merge, "it has no edits before this method; leave them out")
        if merge.key not in (*sums, "nuslerp"):
            self._check_split(merge)
        return writers[merge.key](merge)

    # --- edits ---------------------------------------------------------------------------------------------------

    def _take_edit(self, step: Step) -> None:
        """Add an edit to the weights, the scale or the densities."""
        params: Any = step.params
        if step.key == "wise_ft":
            self.weights = self.weights * params.alpha
        elif step.key == "manual" and params.when == "before":
            self.weights = self.weights * self._resolve(params.rules, params.default)
        elif step.key == "manual":
            self.scale = self.scale * resolve(params.rules, params.default, ["merged"], self.parameters).values
        elif step.key not in ("dare", "breadcrumbs", "della"):
            raise _refuse(step, "it has no such edit")
        elif self.sparsity:
            raise _refuse(step, "it makes task vectors sparse once")
        elif step.key == "dare":
            self._take_dare(step)
        elif step.key == "breadcrumbs":
            self._take_breadcrumbs(step)
        else:
            self.sparsity, self.densities = BY_RANK, self.densities * params.density
            self.sparse_params = {"epsilon": params.epsilon, "rescale": params.rescale_by == "l1"}
            if params.rescale_by == "probability":
                raise _refuse(step, "it rescales each tensor to its former L1 norm; set rescale_by to l1 or none")

    def _take_dare(self, step: Step) -> None:
        params: Any = step.params
        if params.rescale and params.rescale_by != "l1":
            raise _refuse(step, "it rescales each tensor to its former L1 norm; set rescale_by to l1")
        rates = (params.drop_rate * self._resolve(params.rates)).clip(0.0, 1.0)
        self.sparsity, self.densities = RANDOM, (1.0 - rates).round(12)
        self.sparse_params = {"rescale": params.rescale}

    def _take_breadcrumbs(self, step: Step) -> None:
        params: Any = step.params
        self._check_split(step)
        self.densities = (params.density * self._resolve(params.densities)).clip(0.0, 1.0)
        self.sparsity = LARGEST if params.at_least_one and params.gamma == 0 else MIDDLING
        self.sparse_params = {"rescale": params.rescale_by == "l1"}
        if self.sparsity == MIDDLING:
            self.sparse_params["gamma"] = params.gamma
        if params.at_least_one and (params.gamma or self.recipe.merge.key != "ties"):
            raise _refuse(step, "it keeps at least one scalar only in its ties; leave out at_least_one")

    def _resolve(self, rules: Sequence[FactorRule], default: float = 1.0) -> Values:
        return resolve(rules, default, self.experts, self.parameters).values

    def _check_split(self, step: Step) -> None:
        """Raise RecipeError if a step counts query, key and value as the model's file does not."""
        separate, split = has_separate_qkv(self.tensors), getattr(step.params, SPLIT_QKV, False)
        is_packed = any(tensor.parameter.part == "attn.in_proj" for tensor in self.tensors)
        if is_packed and separate != split:
            word = "three tensors" if separate else "one tensor"
            raise _refuse(
                step, f"query, key and value are {word} in the model's file; set split_qkv to {str(separate).lower()}"
            )

    # --- merges --------------------------------------------------------------------------------------------------

    def _sum(self, step: Step) -> dict[str, Any]:
        """Methods that add task vectors up."""
        weights, scale = self.weights, self.scale * step.params.values().get("scaling", 1.0)
        if step.key == "weight_averaging":  # every task counts once, however many checkpoints it has
            tasks = list(group_by_task(self.experts).values())
            for rows in tasks:
                weights[rows] /= len(rows) * len(tasks)
        return self._write_sums(SUM_METHODS[self.sparsity], weights, scale, normalize=False)

    def _ties(self, step: Step) -> dict[str, Any]:
        """Methods that elect a sign."""
        import numpy as np

        params: Any = step.params
        if params.density < 1:
            raise _refuse(
                step,
                "it trims tensor by tensor and keeps int(density · n) scalars; put breadcrumbs with gamma=0 and "
                "at_least_one before ties with density=1",
            )
        if params.zero_votes != "plus":
            raise _refuse(step, "a vote of exactly zero elects plus there; set zero_votes to plus")
        mean, weights, scale = params.aggregation == "mean", self._resolve(params.weights), self.scale * params.scaling
        if not mean or (np.ptp(self.weights) == 0 and self.weights.flat[0] > 0):
            weights = weights * self.weights
            scale = scale * (self.weights.flat[0] if mean else 1.0)
        elif np.ptp(self.weights, axis=0).max() == 0 and self.weights.min() > 0:
            scale = scale * self.weights[:1]
        else:
            raise _refuse(step, "its mean divides by the weights of the models; write them as the weights of ties")
        return self._write_sums(ELECTING[self.sparsity], weights, scale, normalize=mean)

    def _write_sums(self, method: str, weights: Values, scale: Values, normalize: bool) -> dict[str, Any]:
        """The config of a method that adds task vectors up."""
        sparse = dict(self.sparse_params)
        shared = {"normalize": normalize, "lambda": self._setting(scale[0])}
        shared |= {"rescale": sparse.pop("rescale")} if "rescale" in sparse else {}
        models = []
        for (_, reference), weight, density in zip(self.recipe.experts, weights, self.densities, strict=True):
            parameters = {"weight": self._setting(weight), **sparse}
            if self.sparsity or method == "ties":
                parameters["density"] = self._setting(density)
            models.append({"model": _model(reference), "parameters": parameters})
        base = {"base_model": _model(self.recipe.pretrained)}
        return {"merge_method": method, **base, "models": models, "parameters": shared}

    def _sce(self, step: Step) -> dict[str, Any]:
        params: Any = step.params
        if params.equal_below != EQUAL_BELOW:
            raise _refuse(step, f"its coefficients are equal for small changes; set equal_below to {EQUAL_BELOW:g}")
        return self._write_plain("sce", {"select_topk": params.density})

    def _model_stock(self, step: Step) -> dict[str, Any]:
        expected = {"signed": True, "least_norm": LEAST_NORM, SPLIT_QKV: getattr(step.params, SPLIT_QKV)}
        if self.recipe.merge.params != type(step.params).build(expected):
            raise _refuse(step, f"its cosines may be negative; set signed, least_norm={LEAST_NORM:g}, and nothing else")
        if len(self.experts) < 2:
            raise _refuse(step, "it needs two models besides the base model")
        return self._write_plain("model_stock", {})

    def _slerp(self, step: Step) -> dict[str, Any]:
        params: Any = step.params
        if params.between != "weights":
            raise _refuse(step, "it has no arc between task vectors; nuslerp has")
        first, second = (_model(reference) for _, reference in self._pair(step))
        position = (params.t * resolve(params.positions, 1.0, ["all"], self.parameters).values[0]).clip(0.0, 1.0)
        parameters = {"t": self._setting(position)}
        return {"merge_method": "slerp", "base_model": first, "models": [{"model": second}], "parameters": parameters}

    def _nuslerp(self, step: Step) -> dict[str, Any]:
        params: Any = step.params
        self._check_split(step)
        words = {"nuslerp_flatten": params.vectors == "tensor", "nuslerp_row_wise": params.vectors == "columns"}
        models = [
            {"model": _model(reference), "parameters": {"weight": weight}}
            for (_, reference), weight in zip(self._pair(step), (1.0 - params.t, params.t), strict=True)
        ]
        base = {"base_model": _model(self.recipe.pretrained)} if params.between == "task_vectors" else {}
        return {"merge_method": "nuslerp", **base, "models": models, "parameters": words}

    def _karcher(self, step: Step) -> dict[str, Any]:
        params: Any = step.params
        if params.between != "weights":
            raise _refuse(step, "its mean is that of weights; set between to weights")
        config = self._write_plain("karcher", {"max_iter": params.steps, "tol": params.tolerance})
        del config["base_model"]  # mergekit would average over it, too
        return config

    def _pair(self, step: Step) -> Sequence[tuple[str, str]]:
        """The two experts. Raises RecipeError for another number."""
        if len(self.experts) != 2:
            raise _refuse(step, "it takes two models")
        return self.recipe.experts

    def _write_plain(self, method: str, shared: Mapping[str, Any]) -> dict[str, Any]:
        """The config of a method whose models have no parameters."""
        models = [{"model": _model(reference)} for _, reference in self.recipe.experts]
        parameters = {"parameters": dict(shared)} if shared else {}
        return {"merge_method": method, "base_model": _model(self.recipe.pretrained), "models": models, **parameters}

    def _setting(self, values: Values) -> Any:
        """Values (L,) as one number, or as filters by the names in the file and the commonest value for all others."""
        numbers: list[float] = values.tolist()
        common = max(dict.fromkeys(numbers), key=numbers.count)
        other = {
            stored: value
            for tensor, value in zip(self.tensors, numbers, strict=True)
            for stored in tensor.stored
            if value != common
        }
        if not other:
            return common
        names = [stored for tensor in self.tensors for stored in tensor.stored]
        # A filter fits every name that holds it: such names need entries of their own, and longer ones come first.
        chosen = sorted((name for name in names if any(word in name for word in other)), key=lambda name: -len(name))
        return [*({"filter": name, "value": other.get(name, common)} for name in chosen), {"value": common}]


def _model(reference: str) -> str:
    """A reference as mergekit writes it: names on the Hub without prefix."""
    return reference.removeprefix(HUB_PREFIX)

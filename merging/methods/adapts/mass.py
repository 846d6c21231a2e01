"""MASS: every image uses a model merged from the few tasks whose singular vectors explain it best."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from merging.base.errors import ParameterError
from merging.methods.adapted_network import AdaptedTower, Learned, MergedNetwork, Parts, Shapes, Sizes
from merging.methods.method import Adapt, register
from merging.methods.params import Params, choice, fraction, integer
from merging.methods.shared import citations, fields
from merging.methods.shared.singular_vectors import RIGHT, join_factors, kept_rank, read_factors, thin_factors
from merging.methods.slot import Slot

# {value of the parameter ``layer``: name of the weight in its block}
LAYERS = {"in_proj": "attn.in_proj_weight", "out_proj": "attn.out_proj.weight",
          "c_fc": "mlp.c_fc.weight", "c_proj": "mlp.c_proj.weight"}  # fmt: skip
MIN_SPREAD = 1e-6  # added to the standard deviation of an image's distances


@dataclass(frozen=True, kw_only=True)
class MassParams(Params):
    """The parameters of MASS."""

    threshold: float = fraction(
        0.2, label="Threshold", help="An image selects a task if its weight for the task is larger."
    )
    most: int = integer(
        3, low=1, high=1000, slider=(1, 8), label="Most tasks", help="Most tasks that one image selects."
    )
    layer: str = choice(
        "c_fc", "in_proj", "out_proj", "c_proj", label="Layer", help="The layer whose input is compared."
    )
    block: int | None = integer(
        None,
        low=0,
        high=1000,
        slider=(0, 23),
        optional=True,
        unset="the last",
        label="Block",
        help="Block of the layer.",
    )
    scaling: float = fields.scaling(1.0, (0.0, 3.0), step=0.1)


def stored_bases(slot: Slot, params: MassParams) -> list[Parts]:
    """Every task's stored parts: thin factors of 1/K of a matrix's rank, as in TSV-M; other tensors (*S) whole."""
    vectors = slot.task_vectors
    if slot.pretrained.ndim != 2:
        return [{"": vector} for vector in vectors]
    return [thin_factors(vector, kept_rank(min(vector.shape), len(vectors), share=None)) for vector in vectors]


def shapes(params: MassParams, sizes: Sizes) -> Shapes:
    """No shapes, since nothing is learned; raises ParameterError if the tower does not have the block."""
    if params.block is not None and params.block >= sizes.blocks:
        raise ParameterError(f"mass: block must be below {sizes.blocks}, the number of blocks; got {params.block}.")
    return Shapes()


def train(network: MergedNetwork, params: MassParams) -> Learned:
    """Return no data: the stored parts of the tasks serve as the router."""
    shapes(params, network.sizes)
    return Learned()


def weights(rows: Tensor, bases: list[Tensor | None]) -> Tensor:
    """Weights (n, K) of rows (n, d): the softmax of their standardized, negative distances from each basis (r, d).

    The basis is None for a task that does not change the tensor.
    """
    residuals = [rows if basis is None else rows - rows @ basis.T @ basis for basis in bases]
    distances = torch.stack([residual.norm(dim=1) for residual in residuals], dim=1)
    if len(bases) == 1:
        return torch.ones_like(distances)
    spread = distances.std(dim=1, keepdim=True) + MIN_SPREAD
    return ((distances.mean(dim=1, keepdim=True) - distances) / spread).softmax(dim=1)


def select_tasks(image_weights: Tensor, params: MassParams) -> Tensor:
    """The tasks (n, K) that images select by weights (n, K): the largest ones above the threshold, at least one."""
    ranks = image_weights.argsort(dim=1, descending=True, stable=True).argsort(dim=1)  # of every task, from 0
    return ((image_weights > params.threshold) & (ranks < params.most)) | (ranks == 0)


def routing(tower: AdaptedTower, learned: Learned, images: Tensor, params: MassParams) -> Tensor:
    """The weights (n, K) of images (n, 3, h, w), by the class token at the input of one layer of the merged model."""
    block = tower.blocks - 1 if params.block is None else params.block
    name = f"transformer.resblocks.{block}.{LAYERS[params.layer]}"
    return weights(tower.capture_class_tokens(images, name), [parts.get(RIGHT) for parts in tower.stored_parts(name)])


def merge_parts(parts: list[Parts], scaling: float) -> Tensor:
    """The merged tensor of some tasks: TSV-M (m, n) of thin factors, or the mean (*S) of tensors stored whole."""
    if "" in parts[0]:
        return scaling * torch.stack([part[""] for part in parts]).mean(dim=0)
    joined = join_factors([read_factors(part) for part in parts])
    return (scaling * (joined.left * joined.values) @ joined.right).to(parts[0][RIGHT])


def features(tower: AdaptedTower, learned: Learned, images: Tensor, task: str | None, params: MassParams) -> Tensor:
    """Features (n, e) of images (n, 3, h, w) from the models of their selected tasks."""
    selected = select_tasks(routing(tower, learned, images, params), params)
    return tower.features_by_tasks(images, selected, partial(merge_parts, scaling=params.scaling))


register(
    Adapt(
        key="mass",
        title="MASS",
        summary=(
            "A first pass through the merged model finds the tasks whose singular vectors explain an image best. A "
            "second pass uses a model merged by TSV-M from these few tasks. There is no training, and no image is "
            "needed."
        ),
        formula=r"w(x) = \mathrm{softmax}_k\left(-\mathrm{std}_k\,\|x - V_k V_k^\top x\|\right), \quad "
        r"\theta(x) = \theta_0 + \lambda\,\mathrm{TSV\text{-}M}(\tau_k : w_k(x) > t)",
        cite=citations.MASS,
        params=MassParams,
        train=train,
        shapes=shapes,
        features=features,
        routing=routing,
        candidate_tasks=select_tasks,
        stores=stored_bases,
        as_they_came=True,
        mixes_on_pretrained=True,
        variant=(
            "The first pass uses the chain's merged model, whichever merge made it; the paper's is TSV-M. Edits change "
            "only that model. The class token is compared, image by image. The layer is a parameter, since the "
            "released code reads it from its settings; the default is ours, chosen by the routing of training images "
            "on the bundled benchmark."
        ),
    )
)

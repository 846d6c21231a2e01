"""MASS: every image is sent through a model merged of the few tasks whose singular vectors explain it best."""

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

LAYERS = {"in_proj": "attn.in_proj_weight", "out_proj": "attn.out_proj.weight",
          "c_fc": "mlp.c_fc.weight", "c_proj": "mlp.c_proj.weight"}  # fmt: skip
LEAST_SPREAD = 1e-6


@dataclass(frozen=True, kw_only=True)
class MassParams(Params):
    """The parameters of MASS."""

    threshold: float = fraction(0.2, label="Threshold", help="A task is taken if an image's weight of it is larger.")
    most: int = integer(3, low=1, high=1000, slider=(1, 8), label="Most tasks", help="Taken for one image.")
    layer: str = choice("c_fc", "in_proj", "out_proj", "c_proj", label="Layer", help="Whose input is compared.")
    block: int | None = integer(
        None, low=0, high=1000, slider=(0, 23), optional=True, unset="the last", label="Block", help="Of that layer.",
    )  # fmt: skip
    scaling: float = fields.scaling(1.0, (0.0, 3.0), step=0.1)


def stored_bases(slot: Slot, params: MassParams) -> list[Parts]:
    """Every task's vector: of a matrix 1/K of the singular vectors, as TSV-M keeps them; others whole."""
    vectors = slot.task_vectors
    if slot.pretrained.ndim != 2:
        return [{"": vector} for vector in vectors]
    return [thin_factors(vector, kept_rank(min(vector.shape), len(vectors), None)) for vector in vectors]


def shapes(params: MassParams, sizes: Sizes) -> Shapes:
    """Nothing is learned; raises ParameterError where the tower has no such block."""
    if params.block is not None and params.block >= sizes.blocks:
        raise ParameterError(f"mass: block must be below {sizes.blocks}, the number of blocks; got {params.block}.")
    return Shapes()


def train(network: MergedNetwork, params: MassParams) -> Learned:
    """Nothing, since the router is what is stored of the tasks."""
    shapes(params, network.sizes)
    return Learned()


def weights(rows: Tensor, bases: list[Tensor | None]) -> Tensor:
    """Weights (n, K) of rows (n, d): the softmax of what each task's basis (r, d) leaves of them, standardized."""
    left = torch.stack([(rows if b is None else rows - rows @ b.T @ b).norm(dim=1) for b in bases], dim=1)
    if len(bases) == 1:
        return torch.ones_like(left)
    spread = left.std(dim=1, keepdim=True) + LEAST_SPREAD
    return ((left.mean(dim=1, keepdim=True) - left) / spread).softmax(dim=1)


def select_tasks(shares: Tensor, params: MassParams) -> Tensor:
    """Which tasks (n, K) are taken by weights (n, K): the largest above the threshold, and the largest of all."""
    order = shares.argsort(dim=1, descending=True, stable=True).argsort(dim=1)  # every task's place
    return ((shares > params.threshold) & (order < params.most)) | (order == 0)


def routing(tower: AdaptedTower, learned: Learned, images: Tensor, params: MassParams) -> Tensor:
    """The weights (n, K), by the class token that enters one layer of the merged model."""
    block = tower.blocks - 1 if params.block is None else params.block
    name = f"transformer.resblocks.{block}.{LAYERS[params.layer]}"
    return weights(tower.capture_class_tokens(images, name), [parts.get(RIGHT) for parts in tower.stored_parts(name)])


def merge_parts(parts: list[Parts], scaling: float) -> Tensor:
    """TSV-M of the tasks of which these parts are stored: (m, n), or the mean of vectors that are stored whole."""
    if "" in parts[0]:
        return scaling * torch.stack([part[""] for part in parts]).mean(dim=0)
    whole = join_factors([read_factors(part) for part in parts])
    return (scaling * (whole.left * whole.values) @ whole.right).to(parts[0][RIGHT])


def features(tower: AdaptedTower, learned: Learned, images: Tensor, task: str | None, params: MassParams) -> Tensor:
    """Features (n, e) through the models of the tasks that are taken."""
    chosen = select_tasks(routing(tower, learned, images, params), params)
    return tower.features_by_tasks(images, chosen, partial(merge_parts, scaling=params.scaling))


register(
    Adapt(
        key="mass",
        title="MASS",
        summary=(
            "A first pass through the merged model asks which tasks' singular vectors explain an image, and a second "
            "one goes through a model merged by TSV-M of those few tasks. Nothing is trained, and no image is needed."
        ),
        formula=r"w(x) = \mathrm{softmax}_k\left(-\mathrm{std}_k\,\|x - V_k V_k^\top x\|\right), \quad "
        r"\theta(x) = \theta_0 + \lambda\,\mathrm{TSV\text{-}M}(\tau_k : w_k(x) > t)",
        cite=citations.MASS,
        params=MassParams,
        train=train,
        shapes=shapes,
        features=features,
        routing=routing,
        names=select_tasks,
        stores=stored_bases,
        as_they_came=True,
        mixes_on_pretrained=True,
        variant=(
            "The first pass goes through whatever the chain merged; the paper's is TSV-M. Edits change only that. "
            "The class token is compared, image by image. The layer is a parameter, since the released code takes it "
            "from its settings; the default is ours, by how training images are routed on the bundled benchmark."
        ),
    )
)

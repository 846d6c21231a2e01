"""Twin-Merging: what each expert knows beyond the merged model is kept compressed, and mixed in for every image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor

from merging.methods.adapted_network import AdaptedTower, Learned, MergedNetwork, Parts, Router, Shapes, Sizes
from merging.methods.learning import Adam, require_finite
from merging.methods.method import Adapt, Needs, register
from merging.methods.params import Params, fraction, integer
from merging.methods.shared import citations, fields, routers
from merging.methods.shared.singular_vectors import thin_factors
from merging.methods.shared.trimming import floor_share
from merging.methods.slot import Slot

LEAK, LEAST_SPREAD = 0.01, 1e-6


@dataclass(frozen=True, kw_only=True)
class TwinParams(Params):
    """The parameters of Twin-Merging."""

    density: float = fraction(
        0.1, symbol=r"\rho", label="Density",
        help="Share of the rank of what an expert knows beyond the merged model; 1 keeps all of it.",
    )  # fmt: skip
    hidden: int | None = integer(
        None, low=1, high=100_000, slider=(16, 2048), optional=True, unset="twice the features' size",
        label="Hidden numbers", help="Of the router, between its two layers.",
    )  # fmt: skip
    steps: int = fields.learning_steps(500, (0, 2000), "Updates by Adam.")
    lr: float = fields.learning_rate(5e-4, (1e-4, 1e-2), 1e-4, "About how far one step moves each number.")
    seed: int = fields.image_seed()


def shapes(params: TwinParams, sizes: Sizes) -> Shapes:
    """What is learned: the mean and spread of features, and two layers."""
    e, k, h = sizes.embed_dim, sizes.tasks, params.hidden or 2 * sizes.embed_dim
    linear = {"fc1.weight": (h, e), "fc1.bias": (h,), "fc2.weight": (k, h), "fc2.bias": (k,)}
    return Shapes({"mean": (e,), "std": (e,), **linear})


def stored_factors(slot: Slot, params: TwinParams) -> list[Parts]:
    """Every task's exclusive tensor: a matrix as two thin factors, singular values in the left one, others whole."""
    if slot.pretrained.ndim < 2 or params.density == 1:
        return [{"": vector} for vector in slot.task_vectors]
    matrices = slot.task_vectors.flatten(2)
    rank = floor_share(min(matrices.shape[1:]), params.density)
    return [thin_factors(matrix, rank) for matrix in matrices] if rank else [{} for _ in matrices]


def logits(router: Router, features: Tensor) -> Tensor:
    """The router's logits (n, K) of the merged model's features (n, e)."""
    rows = (features - router["mean"]) / router["std"]
    return routers.apply_layers(router, rows, lambda hidden: nnf.leaky_relu(hidden, LEAK))


def train(network: MergedNetwork, params: TwinParams) -> Learned:
    """A router that tells from which task's exemplars an image is; labels of classes do not enter."""
    import pandas as pd

    each = [network.merged_features(task) for task in network.tasks]
    features = torch.cat(each)
    goals = torch.cat([torch.full((len(rows),), k, device=features.device) for k, rows in enumerate(each)])
    known = {"mean": features.mean(dim=0), "std": features.std(dim=0, correction=0).clamp(min=LEAST_SPREAD)}
    start = {}
    for name, shape in shapes(params, network.sizes).router.items():
        if name not in known:
            layer, kind = int(name[2]), int(name.endswith("bias"))  # addresses count layers from 0
            inputs = shapes(params, network.sizes).router[f"fc{layer}.weight"][1]
            drawn = routers.sample_uniform([params.seed, layer - 1, kind], inputs**-0.5, shape)
            start[name] = drawn.to(features.dtype).double()
    adam, losses = Adam(start, params.lr), []
    for step in range(params.steps):
        leaves = {name: value.to(features).detach().requires_grad_() for name, value in adam.values.items()}
        loss = nnf.cross_entropy(logits({**known, **leaves}, features), goals)
        slopes = torch.autograd.grad(loss, list(leaves.values()))
        number = float(loss.detach().cpu())
        require_finite([number], step, ["the router"], "cross-entropy", adam.values.values)
        adam.step({name: slope.to("cpu", torch.float64) for name, slope in zip(leaves, slopes, strict=True)})
        losses.append((step, "router", number))
        network.report_progress(f"router · step {step + 1} of {params.steps}", (step + 1) / params.steps)
    router = {**known, **{name: value.to(features) for name, value in adam.values.items()}}
    return Learned(router, tables={"learning": pd.DataFrame(losses, columns=["step", "expert", "loss"])})


def routing(tower: AdaptedTower, learned: Learned, images: Tensor, params: TwinParams) -> Tensor:
    """The weights (n, K) by which the images mix the exclusive vectors."""
    return logits(learned.router, tower.features(images)).softmax(dim=1)


def features(tower: AdaptedTower, learned: Learned, images: Tensor, task: str | None, params: TwinParams) -> Tensor:
    """Features (n, e) through the merged model plus every image's own mixture."""
    return tower.features_by_mixture(images, routing(tower, learned, images, params))


register(
    Adapt(
        key="twin",
        title="Twin-Merging",
        summary=(
            "The merged model is what all tasks share. What each expert knows beyond it is kept at a low rank, and a "
            "router, trained to tell the tasks' exemplars apart, decides for every image how much of each is added."
        ),
        formula=r"\theta(x) = \theta^* + \sum_k w_k(x)\,\mathrm{SVD}_r(\theta_k - \theta^*)",
        cite=citations.TWIN,
        params=TwinParams,
        needs=Needs.EXEMPLARS,
        loss="Cross-entropy with the task (nats)",
        train=train,
        shapes=shapes,
        features=features,
        updates=lambda params, images: (params.steps, params.steps * sum(images)),
        routing=routing,
        stores=stored_factors,
        names=lambda weights, params: nnf.one_hot(weights.argmax(dim=1), weights.shape[1]).bool(),
        exclusive=True,
        variant=(
            "The released code is for language models. Here the router reads image features, has one hidden layer "
            "without dropout or batch statistics, and its last step is kept; biases are mixed as all other tensors are."
        ),
    )
)

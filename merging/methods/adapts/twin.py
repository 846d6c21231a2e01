"""Twin-Merging: each expert's difference from the merged model is stored compressed and mixed in per image."""

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

LEAKY_SLOPE = 0.01  # of the router's activation for negative inputs
MIN_DEVIATION = 1e-6  # least standard deviation by which features are divided


@dataclass(frozen=True, kw_only=True)
class TwinParams(Params):
    """The parameters of Twin-Merging."""

    density: float = fraction(
        0.1, symbol=r"\rho", label="Density",
        help="Share of the rank of an expert's difference from the merged model; 1 keeps all of it.",
    )  # fmt: skip
    hidden: int | None = integer(
        None, low=1, high=100_000, slider=(16, 2048), optional=True, unset="twice the features' size",
        label="Hidden size", help="Number of hidden units between the router's two layers.",
    )  # fmt: skip
    steps: int = fields.learning_steps(500, (0, 2000), "Steps of Adam.")
    lr: float = fields.learning_rate(
        5e-4, slider=(1e-4, 1e-2), step=1e-4, help="About how far one step moves each parameter."
    )
    seed: int = fields.image_seed()


def shapes(params: TwinParams, sizes: Sizes) -> Shapes:
    """The shapes of the router: the mean and standard deviation of features, and two layers."""
    e, k, h = sizes.embed_dim, sizes.tasks, params.hidden or 2 * sizes.embed_dim
    linear = {"fc1.weight": (h, e), "fc1.bias": (h,), "fc2.weight": (k, h), "fc2.bias": (k,)}
    return Shapes({"mean": (e,), "std": (e,), **linear})


def stored_factors(slot: Slot, params: TwinParams) -> list[Parts]:
    """Every task's stored parts: for a matrix two thin factors (m, r) and (r, n), other tensors (*S) whole."""
    if slot.pretrained.ndim < 2 or params.density == 1:
        return [{"": vector} for vector in slot.task_vectors]
    matrices = slot.task_vectors.flatten(2)
    rank = floor_share(min(matrices.shape[1:]), params.density)
    return [thin_factors(matrix, rank) for matrix in matrices] if rank else [{} for _ in matrices]


def logits(router: Router, features: Tensor) -> Tensor:
    """The router's logits (n, K) of the merged model's features (n, e)."""
    rows = (features - router["mean"]) / router["std"]
    return routers.apply_layers(router, rows, lambda hidden: nnf.leaky_relu(hidden, LEAKY_SLOPE))


def train(network: MergedNetwork, params: TwinParams) -> Learned:
    """A router that learns which task an exemplar belongs to; class labels are not used."""
    import pandas as pd

    by_task = [network.merged_features(task) for task in network.tasks]
    features = torch.cat(by_task)
    labels = torch.cat([torch.full((len(rows),), k, device=features.device) for k, rows in enumerate(by_task)])
    statistics = {"mean": features.mean(dim=0), "std": features.std(dim=0, correction=0).clamp(min=MIN_DEVIATION)}
    initial = {}
    for name, shape in shapes(params, network.sizes).router.items():
        if name not in statistics:
            layer, is_bias = int(name[2]), int(name.endswith("bias"))  # "fc1.bias" is of layer 1; seeds count from 0
            inputs = shapes(params, network.sizes).router[f"fc{layer}.weight"][1]
            sampled = routers.sample_uniform([params.seed, layer - 1, is_bias], inputs**-0.5, shape)
            # Adam is in float64, from values that the features' dtype can hold.
            initial[name] = sampled.to(features.dtype).double()
    adam, losses = Adam(initial, params.lr), []
    for step in range(params.steps):
        leaves = {name: tensor.to(features).detach().requires_grad_() for name, tensor in adam.values.items()}
        loss = nnf.cross_entropy(logits({**statistics, **leaves}, features), labels)
        slopes = torch.autograd.grad(loss, list(leaves.values()))
        value = float(loss.detach().cpu())
        require_finite([value], step, ["the router"], "cross-entropy", adam.values.values)
        adam.step({name: slope.to("cpu", torch.float64) for name, slope in zip(leaves, slopes, strict=True)})
        losses.append((step, "router", value))
        network.report_progress(f"router · step {step + 1} of {params.steps}", (step + 1) / params.steps)
    router = {**statistics, **{name: value.to(features) for name, value in adam.values.items()}}
    return Learned(router, tables={"learning": pd.DataFrame(losses, columns=["step", "expert", "loss"])})


def routing(tower: AdaptedTower, learned: Learned, images: Tensor, params: TwinParams) -> Tensor:
    """The weights (n, K) by which images (n, 3, h, w) mix the tasks' stored differences."""
    return logits(learned.router, tower.features(images)).softmax(dim=1)


def features(tower: AdaptedTower, learned: Learned, images: Tensor, task: str | None, params: TwinParams) -> Tensor:
    """Features (n, e) of images (n, 3, h, w) from the merged model plus each image's mixture."""
    return tower.features_by_mixture(images, routing(tower, learned, images, params))


register(
    Adapt(
        key="twin",
        title="Twin-Merging",
        summary=(
            "The merged model represents what all tasks share. Each expert's difference from it is stored at low rank. "
            "A router, trained to distinguish the tasks' exemplars, decides for every image how much of each to add."
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
        candidate_tasks=lambda weights, params: nnf.one_hot(weights.argmax(dim=1), weights.shape[1]).bool(),
        exclusive=True,
        variant=(
            "The released code is for language models. Here the router reads image features, has one hidden layer "
            "without dropout or batch statistics, and has the weights of its last step; biases are mixed like other "
            "tensors."
        ),
    )
)

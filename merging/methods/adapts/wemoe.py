"""WEMoE: a router in every block mixes the experts' MLPs separately for each image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from merging.methods.adapted_network import AdaptedTower, Learned, MergedNetwork, Parts, Router, Shapes, Sizes
from merging.methods.learning import Adam, require_finite
from merging.methods.method import Adapt, Needs, register
from merging.methods.params import Params, choice, flag, fraction, integer, real
from merging.methods.shared import citations, fields, routers
from merging.methods.slot import Slot

INITIAL_DEVIATION = 0.01  # standard deviation of a router's initial weights


@dataclass(frozen=True, kw_only=True)
class WemoeParams(Params):
    """The parameters of WEMoE."""

    router_layers: int = integer(
        2, low=0, high=2, slider=(0, 2), label="Router layers", help="With 0, weights are constants per block and task."
    )
    init: float = real(
        0.3, low=-1000.0, high=1000.0, slider=(0.0, 1.0), step=0.05, label="Initial weight",
        help="Weight of every task before learning.",
    )  # fmt: skip
    steps: int = fields.learning_steps(1000, (0, 2000), "Steps of Adam.")
    lr: float = fields.learning_rate(
        1e-4, slider=(1e-5, 1e-2), step=1e-5, help="About how far one step moves each parameter."
    )
    batch: int = fields.task_batch(16)
    routing: str = choice(
        "batch", "image", label="Routing in training",
        help="One mixture per batch of a task, as in the released code, or per image. Evaluation is always per image.",
    )  # fmt: skip
    shared: bool = flag(False, label="One router", help="One router for all blocks, as in E-WEMoE.")
    density: float = fraction(
        1.0,
        symbol=r"\rho",
        label="Density",
        help="Share of each MLP task vector's scalars that are kept, largest first.",
    )
    seed: int = fields.image_seed()


def shapes(params: WemoeParams, sizes: Sizes) -> Shapes:
    """The shapes of the learned routers: one for every block, or one for all blocks."""
    one_router = routers.router_shapes(sizes.width, sizes.tasks, params.router_layers)
    blocks = 1 if params.shared else sizes.blocks
    return Shapes({f"{block}.{name}": shape for block in range(blocks) for name, shape in one_router.items()})


def initial_routers(params: WemoeParams, sizes: Sizes) -> Router:
    """The routers before learning: small random weights, and the initial weight of all tasks as the last bias."""
    router = {}
    for name, shape in shapes(params, sizes).router.items():
        block, _, layer = name.partition(".")
        if layer.endswith("weight"):  # fc1.weight or fc2.weight
            router[name] = routers.sample_normal([params.seed, int(block), int(layer[2])], INITIAL_DEVIATION, shape)
        else:
            is_last = layer == routers.last_bias_name(params.router_layers)
            router[name] = torch.full(shape, params.init if is_last else 0.0, dtype=torch.float64)
    return router


def stored_vectors(slot: Slot, params: WemoeParams) -> list[Parts]:
    """Every task's vector (*S) of an MLP tensor; with a density below 1, only its largest scalars are nonzero."""
    vectors, count = slot.task_vectors, int(params.density * slot.pretrained.numel())
    if count < slot.pretrained.numel():
        rows = vectors.flatten(1)
        masks = torch.zeros_like(rows).scatter_(1, rows.abs().topk(count, dim=1).indices, 1.0)
        vectors = (rows * masks).reshape(vectors.shape)
    return [{"": vector} for vector in vectors]


def train(network: MergedNetwork, params: WemoeParams) -> Learned:
    """Routers that minimize the entropy of predictions, without labels."""
    import pandas as pd

    initial = initial_routers(params, network.sizes)
    # Adam is in float64, from values that the network's dtype can hold.
    adam = Adam({name: value.to(network.dtype).double() for name, value in initial.items()}, params.lr)
    losses: list[tuple[float, ...]] = []
    if state := network.load_state():
        losses = [tuple(row) for row in state.pop("losses").tolist()]
        adam.restore(state)
    for step in range(adam.steps, params.steps):
        router = {name: value.to(network.dtype) for name, value in adam.values.items()}
        entropies, slopes = network.compute_entropies(
            router,
            routers.route_images,
            per_image=params.routing == "image",
            seed=params.seed,
            batch=params.batch,
            step=step,
        )
        require_finite(entropies, step, network.tasks, "entropy", adam.values.values)
        adam.step({name: slope.to("cpu", torch.float64) for name, slope in slopes.items()})
        losses.append(entropies)
        network.offer_state(lambda: {**adam.state(), "losses": torch.tensor(losses, dtype=torch.float64)})
        mean = sum(entropies) / len(entropies)
        network.report_progress(f"step {step + 1} of {params.steps} · entropy {mean:.2f}", (step + 1) / params.steps)
    rows = [(step, task, row[k]) for step, row in enumerate(losses) for k, task in enumerate(network.tasks)]
    table = pd.DataFrame(rows, columns=["step", "expert", "loss"])
    return Learned({name: value.to(network.dtype) for name, value in adam.values.items()}, tables={"learning": table})


def features(tower: AdaptedTower, learned: Learned, images: Tensor, task: str | None, params: WemoeParams) -> Tensor:
    """Features (n, e) of images (n, 3, h, w), each routed by itself."""
    return tower.features_by_router(images, partial(routers.route_images, learned.router))


def routing(tower: AdaptedTower, learned: Learned, images: Tensor, params: WemoeParams) -> Tensor:
    """The weights (n, blocks, K) by which images (n, 3, h, w) mix the experts' MLPs."""
    weights: list[Tensor] = []

    def route(block: int, tokens: Tensor) -> Tensor:
        weights.append(routers.route_images(learned.router, block, tokens))
        return weights[-1]

    tower.features_by_router(images, route)
    return torch.stack(weights, dim=1)


register(
    Adapt(
        key="wemoe",
        title="WEMoE",
        summary=(
            "The experts are merged, except for their MLPs, which are mixed separately for every image: in each block, "
            "a small router, learned without labels, computes the weights of the mixture."
        ),
        formula=r"\theta_b(x) = \theta_{0,b} + \sum_k r_{b,k}(x)\,\tau_{k,b}",
        cite=citations.WEMOE,
        params=WemoeParams,
        needs=Needs.TEST_DATA,
        heads=True,
        count_images_processed=lambda params, images: params.steps * sum(min(params.batch, n) for n in images),
        loss="Entropy of the predictions (nats)",
        train=train,
        shapes=shapes,
        features=features,
        routing=routing,
        stores=stored_vectors,
        stores_of=lambda parameter: parameter.part.startswith("mlp."),
        mixes_on_pretrained=True,
        variant=(
            "Every image is routed by itself when the model is used, as in the paper; the released evaluation mixes "
            "once per batch, which is known to be of one task. One router for all blocks and a density below 1 give "
            "E-WEMoE."
        ),
    )
)

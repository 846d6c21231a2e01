"""Representation Surgery: a thin module per task corrects the merged model's features towards the expert's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

import torch
from torch import Tensor

from merging.methods.adapted_network import AdaptedTower, Learned, MergedNetwork, Shapes, Sizes
from merging.methods.learning import Adam, batch_order, require_finite
from merging.methods.method import Adapt, Needs, register
from merging.methods.params import Params, integer
from merging.methods.shared import citations, fields, routers
from merging.methods.shared.feature_shift import shift_row

Module = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class SurgeryParams(Params):
    """The parameters of Surgery."""

    rank: int = integer(
        16, low=1, high=100_000, slider=(1, 64), symbol="r", label="Rank", help="Hidden dimensions of every module."
    )
    steps: int = fields.learning_steps(1000, (0, 4000), "Steps of Adam.")
    lr: float = fields.learning_rate(
        1e-3, slider=(1e-4, 1e-2), step=1e-4, help="About how far one step moves each parameter."
    )
    batch: int = fields.task_batch(16)
    seed: int = fields.image_seed()


def shapes(params: SurgeryParams, sizes: Sizes) -> Shapes:
    """The shapes of the learned tensors of each task: ``down`` (r, e) and ``up`` (e, r)."""
    return Shapes(per_task={"down": (params.rank, sizes.embed_dim), "up": (sizes.embed_dim, params.rank)})


def correct_features(features: Tensor, module: Module) -> Tensor:
    """Features (n, e) corrected by a task's module: f - ReLU(f downᵀ) upᵀ."""
    return features - (features @ module["down"].T).relu() @ module["up"].T


def gradients(features: Tensor, targets: Tensor, module: Module) -> tuple[float, dict[str, Tensor]]:
    """The mean |difference| of corrected features (n, e) from targets (n, e), and its gradients (r, e), (e, r)."""
    hidden = features @ module["down"].T
    error = features - hidden.relu() @ module["up"].T - targets
    slope = error.sign() / error.numel()
    inner = -(slope @ module["up"]) * (hidden > 0)
    return float(error.abs().mean().cpu()), {"down": inner.T @ features, "up": -slope.T @ hidden.relu()}


def train(network: MergedNetwork, params: SurgeryParams) -> Learned:
    """A module for every task, learned independently of the others."""
    import pandas as pd

    modules, shifts, rows = {}, [], []
    for k, task in enumerate(network.tasks):
        features, targets = network.merged_features(task), network.expert_features(task)
        bound = network.sizes.embed_dim**-0.5
        task_shapes = shapes(params, network.sizes).per_task
        down = routers.sample_uniform([params.seed, crc32(task.encode())], bound, task_shapes["down"])
        down = down.to(features.dtype).double()  # Adam is in float64, from values that the features' dtype can hold
        adam = Adam({"down": down, "up": torch.zeros(task_shapes["up"], dtype=torch.float64)}, params.lr)
        for step in range(params.steps):
            order = batch_order(params.seed, task, len(features), params.batch, step)
            batch = torch.from_numpy(order).to(features.device)
            module = {name: value.to(features) for name, value in adam.values.items()}
            loss, slopes = gradients(features[batch], targets[batch], module)
            require_finite([loss], step, [task], "distance of features", adam.values.values)
            adam.step({name: slope.to("cpu", torch.float64) for name, slope in slopes.items()})
            rows.append((step, task, loss))
            share = (k + (step + 1) / params.steps) / len(network.tasks)
            network.report_progress(f"{task} · step {step + 1} of {params.steps}", share)
        modules[task] = {name: value.to(features) for name, value in adam.values.items()}
        shifts.append(shift_row(task, targets, features, correct_features(features, modules[task])))
    learning = pd.DataFrame(rows, columns=["step", "expert", "loss"])
    return Learned(per_task=modules, tables={"learning": learning, "feature_shift": pd.DataFrame(shifts)})


def features(tower: AdaptedTower, learned: Learned, images: Tensor, task: str | None, params: SurgeryParams) -> Tensor:
    """The merged model's features (n, e) of images (n, 3, h, w), corrected by the task's module if it is known."""
    merged_features = tower.features(images)
    return merged_features if task is None else correct_features(merged_features, learned.per_task[task])


register(
    Adapt(
        key="surgery",
        title="Surgery",
        summary=(
            "Features of the merged model differ from those of each expert in a systematic way. A small module per "
            "task, learned from unlabeled images, corrects the difference; the model itself is unchanged."
        ),
        formula=r"\hat f = f - U_k\,\mathrm{ReLU}(D_k f), \quad \min \|\hat f - f_k\|_1",
        cite=citations.SURGERY,
        params=SurgeryParams,
        needs=Needs.TEST_DATA,
        loss="Mean |difference| from the expert's features",
        train=train,
        shapes=shapes,
        features=features,
        needs_task=True,
        updates=lambda params, images: (
            params.steps * len(images),
            params.steps * sum(min(params.batch, count) for count in images),
        ),
        plain_code="f = visual(x)\nf = f - relu(f @ down.T) @ up.T\nlogits = scale * normalize(f) @ head.T\n",
        variant=(
            "Raw features, 1,000 updates and a separate Adam for each task, as in the authors' code under a recent "
            "torch; the targets are the features of the unedited experts."
        ),
    )
)

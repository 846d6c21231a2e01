"""The interface of an adapt: the networks that it sees while it learns and while its modules run, and its result.

An adapt puts modules on top of a merged model: small networks per task, or a router that mixes tensors of the tasks.

An adapt is pure: it sees features, losses and single tensors. The engine owns the towers, files, images, progress and
cancellation while the adapt learns; ``merging.engine.modules`` runs the learned modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch import Tensor

Router = Mapping[str, "Tensor"]  # the learned tensors of a router, by name
Route = Callable[[Router, int, "Tensor"], "Tensor"]  # (router, block, tokens (n, T, w)) -> weights (n, K)
Parts = Mapping[str, "Tensor"]  # the stored parts of one tensor for one task, by suffix; "" is the whole tensor


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that determine the shapes of learned tensors."""

    tasks: int
    blocks: int
    width: int
    embed_dim: int


@dataclass(frozen=True)
class Shapes:
    """The shapes of the learned tensors, by name: of the router, and of each task's own tensors."""

    router: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    per_task: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Learned:
    """The result of an adapt: a router for all tasks, and each task's own tensors."""

    router: Router = field(default_factory=dict)
    per_task: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)  # {task: {name: tensor}}
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_device(self, device: torch.device, dtype: torch.dtype | None = None) -> Learned:
        """The tensors, without tables and warnings, on a device and in a dtype; with None they keep their dtypes."""

        def move(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor.to(device, dtype or tensor.dtype) for name, tensor in tensors.items()}

        return Learned(move(self.router), {task: move(tensors) for task, tensors in self.per_task.items()})


class MergedNetwork(Protocol):
    """The merged model, the experts and the images of their tasks, as an adapt sees them while it learns.

    Features are computed once, with one encoder in memory at a time, and are never normalized.
    """

    @property
    def tasks(self) -> tuple[str, ...]:
        """The merged tasks, which are the experts, in order."""
        ...

    @property
    def sizes(self) -> Sizes:
        """The sizes of the tower, and the number of tasks."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of features and of learned tensors."""
        ...

    def merged_features(self, task: str) -> Tensor:
        """The merged model's features (n, e) of all images of a task."""
        ...

    def expert_features(self, task: str) -> Tensor:
        """The features (n, e) of all images of a task from its expert, to which no edit of the chain was applied."""
        ...

    def compute_entropies(
        self, router: Router, route: Route, *, per_image: bool, seed: int, batch: int, step: int
    ) -> tuple[tuple[float, ...], dict[str, Tensor]]:
        """Every task's mean entropy (nats) over its batch of this step, and the gradient of their sum by the router.

        The gradient has a tensor (*S) for every tensor (*S) of the router. ``route`` maps tokens (n, T, w) of a block
        to weights (n, K) that mix the MLPs: with ``per_image``, every image has its own mixture, otherwise a task's
        batch uses the mean weights.
        """
        ...

    def report_progress(self, detail: str, share: float) -> None:
        """Report, between steps, the share of the learning that is done, in [0, 1]; may raise Cancelled or Paused.

        After a pause, learning continues from the last ``offer_state``; an adapt that takes only seconds can offer no
        state and start again.
        """
        ...

    def load_state(self) -> dict[str, Tensor]:
        """The state that an interrupted run of the same recipe stored: tensors of any shape, by name; else empty."""
        ...

    def offer_state(self, state: Callable[[], Mapping[str, Tensor]]) -> None:
        """Offer the state, tensors of any shape by name, from which a later run continues; written periodically.

        Call it between steps. May raise Paused.
        """
        ...


class AdaptedTower(Protocol):
    """The merged model as modules use it, with the tensors that are stored for every task."""

    @property
    def blocks(self) -> int:
        """The number of blocks of the tower."""
        ...

    def features(self, images: Tensor) -> Tensor:
        """The merged model's features (n, e) of images (n, 3, h, w)."""
        ...

    def capture_class_tokens(self, images: Tensor, weight: str) -> Tensor:
        """The class tokens (n, d) of images (n, 3, h, w) at the input of the merged model's linear map ``weight``."""
        ...

    def stored_parts(self, name: str) -> list[Parts]:
        """The stored parts of one tensor, per task; empty if none are stored."""
        ...

    def features_by_tasks(self, images: Tensor, selected: Tensor, combine: Callable[[list[Parts]], Tensor]) -> Tensor:
        """Features (n, e) of images (n, 3, h, w), each from a model of the tasks ``selected`` (n, K) for it.

        That model is the pretrained model plus, for every tensor, the result (*S) of ``combine`` on the tasks' parts.
        """
        ...

    def features_by_mixture(self, images: Tensor, weights: Tensor) -> Tensor:
        """Features (n, e) of images (n, 3, h, w) from the merged model plus each image's mixture of stored parts.

        ``weights`` (n, K) are those of the tasks in the mixture.
        """
        ...

    def features_by_router(self, images: Tensor, route: Callable[[int, Tensor], Tensor]) -> Tensor:
        """Features (n, e) of images (n, 3, h, w); every MLP is the pretrained one plus a mixture of stored parts.

        ``route`` maps a block's number and the tokens (n, T, w) that enter its MLP to the mixture's weights (n, K).
        """
        ...

"""What an adapt sees while it learns and when its modules are used, and what it gives back.

An adapt stays pure: it sees features, losses and single tensors. The engine owns towers, files, images, progress and
cancel while it learns; the room ``modules`` runs what it made.
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
Parts = Mapping[str, "Tensor"]  # what is stored of one tensor for one task, by suffix; "" is the whole tensor


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes on which the shapes of learned tensors depend."""

    tasks: int
    blocks: int
    width: int
    embed_dim: int


@dataclass(frozen=True)
class Shapes:
    """The shapes of what is learned, by name: of the router, and of every task's own tensors."""

    router: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    per_task: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Learned:
    """What an adapt learned: a router for all tasks, and tensors of every task's own."""

    router: Router = field(default_factory=dict)
    per_task: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)  # {task: {name: tensor}}
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_device(self, device: torch.device, dtype: torch.dtype | None = None) -> Learned:
        """The tensors alone, on a device and in a dtype; None leaves them in theirs."""

        def moved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor.to(device, dtype or tensor.dtype) for name, tensor in tensors.items()}

        return Learned(moved(self.router), {task: moved(own) for task, own in self.per_task.items()})


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
        """The dtype of features and of what is learned."""
        ...

    def merged_features(self, task: str) -> Tensor:
        """The merged model's features (n, e) of all images of a task."""
        ...

    def expert_features(self, task: str) -> Tensor:
        """The features (n, e) of the same images by the task's expert as it came."""
        ...

    def entropies(
        self, router: Router, route: Route, *, each: bool, seed: int, batch: int, step: int
    ) -> tuple[tuple[float, ...], dict[str, Tensor]]:
        """Every task's mean entropy over its batch of this step, and the gradient of their sum by the router.

        The MLPs are mixed by what ``route`` gives: with ``each``, for each image by its own weights, and otherwise for
        a task's batch by their mean.
        """
        ...

    def report_progress(self, detail: str, share: float) -> None:
        """Report, between steps, that a share of the learning is done; may raise Cancelled or Paused.

        What an adapt did not offer to ``keep`` is learned anew afterwards, which suits what takes seconds.
        """
        ...

    def restore_state(self) -> dict[str, Tensor]:
        """What an interrupted run of the same recipe kept; empty for a new one."""
        ...

    def offer_state(self, state: Callable[[], Mapping[str, Tensor]]) -> None:
        """Offer, between steps, what a later run would go on from; written from time to time. May raise Paused."""
        ...


class AdaptedTower(Protocol):
    """The merged model as modules use it, with what is stored of every task beside it."""

    @property
    def blocks(self) -> int:
        """How many blocks the tower has."""
        ...

    def features(self, images: Tensor) -> Tensor:
        """The merged model's features (n, e)."""
        ...

    def capture_class_tokens(self, images: Tensor, weight: str) -> Tensor:
        """The class tokens (n, d) that enter a linear map of a block of the merged model."""
        ...

    def stored_parts(self, name: str) -> list[Parts]:
        """What is stored of one tensor for every task; empty where nothing is."""
        ...

    def features_by_tasks(self, images: Tensor, chosen: Tensor, combine: Callable[[list[Parts]], Tensor]) -> Tensor:
        """Features (n, e) of images, each through a model of the tasks that are ``chosen`` (n, K) for it.

        Such a model is the pretrained one plus, tensor by tensor, what ``combine`` makes of what is stored of them.
        """
        ...

    def features_by_mixture(self, images: Tensor, weights: Tensor) -> Tensor:
        """Features (n, e) through the merged model plus each image's own mixture, weights (n, K), of what is stored."""
        ...

    def features_by_router(self, images: Tensor, route: Callable[[int, Tensor], Tensor]) -> Tensor:
        """Features (n, e) through the merged model whose MLPs are the pretrained ones plus such mixtures.

        ``route`` gets a block's number and the tokens (n, T, w) that enter its MLP, and gives weights (n, K).
        """
        ...

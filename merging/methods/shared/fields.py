"""Parameters that several methods share."""

from __future__ import annotations

from typing import Any

from merging.methods.params import flag, fraction, integer, real


def scaling(
    default: float, slider: tuple[float, float], step: float = 0.05, symbol: str = r"\lambda", advice: str = ""
) -> Any:
    """The field of a scaling coefficient; ``advice`` is a sentence after the common help."""
    return real(
        default,
        low=0.0,
        high=1000.0,
        slider=slider,
        step=step,
        symbol=symbol,
        label="Scaling coefficient",
        help=f"Factor on the merged task vector: 0 gives the pretrained model back. {advice}".rstrip(),
    )


def split_qkv(when: tuple[str, Any] | None = None) -> Any:
    """The field ``split_qkv``: whether query, key and value of packed attention tensors count as three tensors.

    ``merging.methods.split_qkv`` does it for every method that has the field; ``when`` is as in ``Bound``.
    """
    return flag(
        False,
        label="Query, key and value apart",
        help="Treat attention's packed tensors (names that end in in_proj_weight or in_proj_bias) as three, a third of "
        "the rows each, as code on Transformers' models does. Off: as one, as code on open_clip's models does.",
        when=when,
        later=True,
    )


def prune_ratio(help: str) -> Any:
    """The field of a prune ratio; ``help`` says what it is a share of."""
    return fraction(0.7, symbol=r"\eta", label="Prune ratio", help=help)


def seed(help: str) -> Any:
    """The field of a seed; ``help`` says what it decides."""
    return integer(0, low=0, high=2**31 - 1, slider=(0, 20), label="Seed", help=help)


def mask_seed() -> Any:
    """The field of the seed of random masks."""
    return seed("Of the random draws. The same seed gives the same masks on any machine.")


def learning_steps(default: int, slider: tuple[int, int], help: str, step: int = 50, **more: Any) -> Any:
    """The field of the number of steps of a method that learns on images."""
    return integer(default, low=0, high=100_000, slider=slider, step=step, label="Steps", help=help, **more)


def learning_rate(
    default: float, slider: tuple[float, float], step: float, help: str, high: float = 1.0, **more: Any
) -> Any:
    """The field of the learning rate of a method that learns on images."""
    return real(
        default,
        low=0.0,
        high=high,
        open_low=True,
        slider=slider,
        step=step,
        symbol=r"\alpha",
        label="Learning rate",
        help=help,
        **more,
    )


def task_batch(default: int) -> Any:
    """The field of the number of images of every task in a step."""
    return integer(
        default,
        low=1,
        high=4096,
        slider=(8, 64),
        step=8,
        label="Batch per task",
        help="Images of every task that each step sees; a task with fewer gives all it has.",
    )


def image_seed() -> Any:
    """The field of the seed of the order in which images are seen."""
    return seed("Order in which images are seen. The same seed gives the same order on any machine.")

"""Parameters that several methods share."""

from __future__ import annotations

from typing import Any

from merging.methods.params import flag, fraction, integer, real


def scaling(
    default: float,
    slider: tuple[float, float],
    step: float = 0.05,
    symbol: str = r"\lambda",
    advice: str = "",
    **bound: Any,
) -> Any:
    """The field of a scaling coefficient; ``advice`` is a sentence added to the common help."""
    return real(
        default,
        low=0.0,
        high=1000.0,
        slider=slider,
        step=step,
        symbol=symbol,
        label="Scaling coefficient",
        help=f"Factor on the merged task vector; 0 gives the pretrained model. {advice}".rstrip(),
        **bound,
    )


def split_qkv(when: tuple[str, Any] | None = None) -> Any:
    """The field ``split_qkv``: whether query, key and value of packed attention tensors count as three tensors.

    ``merging.methods.split_qkv`` splits them for every method that has the field; ``when`` is as in ``Bound``.
    """
    return flag(
        False,
        label="Split query, key and value",
        help="Treat attention's packed tensors (names that end in in_proj_weight or in_proj_bias) as three, each with "
        "a third of the rows, as code for Transformers' models does. Off: as one, as code for open_clip's models does.",
        when=when,
        later=True,
    )


def prune_ratio(help: str) -> Any:
    """The field of a prune ratio; ``help`` states of what it is a share."""
    return fraction(0.7, symbol=r"\eta", label="Prune ratio", help=help)


def seed(help: str) -> Any:
    """The field of a seed; ``help`` states what it decides."""
    return integer(0, low=0, high=2**31 - 1, slider=(0, 20), label="Seed", help=help)


def mask_seed() -> Any:
    """The field of the seed of random masks."""
    return seed("Seed of the random masks. The same seed gives the same masks on any machine.")


def learning_steps(default: int, slider: tuple[int, int], help: str, step: int = 50, **bound: Any) -> Any:
    """The field of the number of steps of a method that learns on images."""
    return integer(default, low=0, high=100_000, slider=slider, step=step, label="Steps", help=help, **bound)


def learning_rate(
    default: float, slider: tuple[float, float], step: float, help: str, high: float = 1.0, **bound: Any
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
        **bound,
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
        help="Images of each task in every step; a task with fewer images uses all of them.",
    )


def image_seed() -> Any:
    """The field of the seed for the order of images."""
    return seed("Seed of the order of images. The same seed gives the same order on any machine.")

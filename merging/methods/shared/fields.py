"""Parameters that several methods share."""

from __future__ import annotations

from typing import Any

from merging.methods.params import fraction, integer, real


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


def prune_ratio(help: str) -> Any:
    """The field of a prune ratio; ``help`` says what it is a share of."""
    return fraction(0.7, symbol=r"\eta", label="Prune ratio", help=help)


def seed() -> Any:
    """The field of the seed of random masks."""
    return integer(
        0,
        low=0,
        high=2**31 - 1,
        slider=(0, 20),
        label="Seed",
        help="Of the random draws. The same seed gives the same masks on any machine.",
    )

"""Stand-ins for methods that learn: a merge and an adapt that need test data, and learn nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from merging.methods import registry
from merging.methods.adapted_network import Learned, Shapes
from merging.methods.method import REGISTERED, Adapt, Merge, Needs
from merging.methods.params import Params, integer
from merging.methods.slot import Survey


@dataclass(frozen=True, kw_only=True)
class LensParams(Params):
    """How thick the lens is."""

    rank: int = integer(16, low=1, label="Rank", help="Of the lens.")


def register_stand_ins(patch: pytest.MonkeyPatch) -> None:
    """Register the merge ``guess`` and the adapt ``lens`` for one test."""
    cite = registry.find_merge("ties").cite
    guess = Merge(
        key="guess", title="Guess", summary="", formula="", cite=cite, needs=Needs.TEST_DATA, heads=True,
        run=lambda slot, params, found: slot.task_vectors.mean(dim=0), learn=lambda blend, params: Survey(None),
    )  # fmt: skip
    lens = Adapt(
        key="lens", title="Lens", summary="", formula="", cite=cite, needs=Needs.TEST_DATA, params=LensParams,
        train=lambda network, params: Learned(), shapes=lambda params, sizes: Shapes(),
        features=lambda tower, learned, images, task: tower.features(images),
    )  # fmt: skip
    registry.list_methods()
    for method in (guess, lens):
        patch.setitem(REGISTERED, (method.role, method.key), method)

"""WiSE-FT: interpolate between the pretrained model and each expert."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from merging.methods.method import Citation, Edit, register
from merging.methods.params import Params, fraction
from merging.methods.slot import Slot


@dataclass(frozen=True, kw_only=True)
class WiseFtParams(Params):
    """The parameters of WiSE-FT."""

    alpha: float = fraction(
        0.5,
        symbol=r"\alpha",
        label="Interpolation",
        help="0 is the pretrained model, 1 the expert.",
    )


def wise_ft(slot: Slot, params: WiseFtParams, statistics: None) -> Tensor:
    """Task vectors times one factor, (K, *S) -> (K, *S)."""
    return params.alpha * slot.task_vectors


register(
    Edit(
        key="wise_ft",
        title="WiSE-FT",
        summary="Interpolates between the pretrained model and each expert before they are merged.",
        formula=r"\theta_k \leftarrow (1 - \alpha) \theta_0 + \alpha \theta_k, \quad \tau_k \leftarrow \alpha \tau_k",
        cite=Citation(
            key="wortsman2022wiseft",
            authors="Wortsman et al.",
            title="Robust fine-tuning of zero-shot models",
            venue="CVPR",
            year=2022,
            arxiv="2109.01903",
        ),
        params=WiseFtParams,
        run=wise_ft,
        elementwise=lambda params, parameter: True,
        variant="One factor for all experts and tensors. Before task arithmetic or TIES it only multiplies their "
        "scaling coefficient; the LwPTV paper tunes both.",
    )
)

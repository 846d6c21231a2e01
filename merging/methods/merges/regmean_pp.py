"""RegMean++: RegMean whose layer inputs pass through the layers that are already merged."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from merging.methods.merges import regmean
from merging.methods.method import Citation, Merge, Needs, register
from merging.methods.slot import Slot


@dataclass(frozen=True, kw_only=True)
class RegmeanPpParams(regmean.RegmeanParams):
    """The parameters of RegMean++: those of RegMean."""


def regmean_pp(slot: Slot, params: RegmeanPpParams, statistics: None) -> Tensor:
    """RegMean of a slot, (K, *S) -> (*S), on layer inputs that pass through the layers already merged."""
    return regmean.regmean(slot, params, statistics)


register(
    Merge(
        key="regmean_pp",
        title="RegMean++",
        summary="RegMean layer by layer: the exemplars reach a block through the merged earlier blocks, as they will "
        "in the merged model, and pass through the expert's own layers inside the block.",
        formula=r"\theta^\top = \Big(\sum_k \hat G_k\Big)^{-1} \sum_k \hat G_k \theta_k^\top, \quad "
        r"G_k = X_k^\top X_k, \quad X_k^{(l)} = f_k^{(l)}\big(f^{(l-1)} \circ \dots \circ f^{(1)}(x)\big)",
        cite=Citation(
            key="nguyen2026regmeanpp",
            authors="Nguyen et al.",
            title="RegMean++: enhancing effectiveness and generalization of regression mean for model merging",
            venue="TMLR",
            year=2026,
            arxiv="2508.03121",
        ),
        params=RegmeanPpParams,
        needs=Needs.EXEMPLARS,
        through_merged=True,
        run=regmean_pp,
        algebra=regmean.count_flops,
        variant="The regression, its table and the tensors that are averaged are those of RegMean. The output "
        "projection is regressed, too, on the outputs of the merged blocks and each expert's last norm; the authors' "
        "code leaves it pretrained. Gram matrices are sums over rows, not means, which matters only if tasks have "
        "different numbers of exemplars. Captured layer inputs cannot be used: the inputs depend on the layers merged "
        "before.",
    )
)

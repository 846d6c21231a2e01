"""Makes torchvision importable beside a CPU-only torch.

The published torchvision wheel is built for CUDA; where its library cannot be loaded, the import still registers fake
kernels for two of its operators and fails because these are not defined. Defining their schemas first is enough: the
operators themselves are not used here, only open_clip's models and text towers, which import torchvision.
"""

from __future__ import annotations

import torch

_libraries: list[torch.library.Library] = []  # a schema lives as long as its library object
_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def prepare_torchvision() -> None:
    """Call before the first import of torchvision or open_clip; does nothing with torch for CUDA, or twice."""
    if _libraries or torch.version.cuda is not None:
        return
    library = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS.values():
        library.define(schema)
    _libraries.append(library)

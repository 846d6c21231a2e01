"""Makes torchvision importable with a CPU-only torch.

The published torchvision wheel is built for CUDA. If its library cannot be loaded, the import still registers fake
kernels for two operators, and fails because the operators are not defined. It succeeds if their schemas are defined
first. Mergescope uses only open_clip's models and text towers, which import torchvision but do not use the operators.
"""

from __future__ import annotations

import torch

_libraries: list[torch.library.Library] = []  # a schema lives as long as its library object
_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def prepare_torchvision() -> None:
    """Define the missing operators; call this before the first import of torchvision or open_clip.

    Does nothing if torch is built for CUDA, or on a second call.
    """
    if _libraries or torch.version.cuda is not None:
        return
    library = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS.values():
        library.define(schema)
    _libraries.append(library)

"""Models whose numbers are packed: what packed them, by the names of their tensors."""

from __future__ import annotations

from collections.abc import Mapping

from merging.models.tensor_info import TensorInfo

# What stands at the end of names, by what writes it; the first that is found names it.
MARKS = {
    "GPTQ": ("g_idx",), "GPTQ or AWQ": ("qweight", "qzeros"), "bitsandbytes": ("absmax", "quant_map", "SCB"),
    "8-bit floats": ("weight_scale_inv",),
}  # fmt: skip


def quantized(infos: Mapping[str, TensorInfo]) -> str:
    """What packed the numbers of a model; empty if they are whole."""
    ends = {name.rpartition(".")[2] for name in infos}
    return next((title for title, marks in MARKS.items() if ends & set(marks)), "")

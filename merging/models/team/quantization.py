"""Quantized models, recognized by the names of their tensors."""

from __future__ import annotations

from collections.abc import Mapping

from merging.models.tensor_info import TensorInfo

# {format: last components of the names that it writes}; the first match counts.
FORMAT_ENDINGS = {
    "GPTQ": ("g_idx",), "GPTQ or AWQ": ("qweight", "qzeros"), "bitsandbytes": ("absmax", "quant_map", "SCB"),
    "8-bit floats": ("weight_scale_inv",),
}  # fmt: skip


def quantization_format(infos: Mapping[str, TensorInfo]) -> str:
    """The format in which a model's numbers are quantized; empty if they are not quantized."""
    ends = {name.rpartition(".")[2] for name in infos}
    return next((title for title, marks in FORMAT_ENDINGS.items() if ends & set(marks)), "")

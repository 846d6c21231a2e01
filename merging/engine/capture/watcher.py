"""Detects the uses of a weight in any module: a mode whose hook torch calls in place of every torch function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor
from torch.overrides import TorchFunctionMode

from merging.engine.capture.known_weights import KnownWeights, WeightUse
from merging.engine.capture.row_store import RowStore

ATTENTION_SIGNATURE = inspect.signature(nnf.multi_head_attention_forward)
NORM_SIGNATURES = {
    norm: inspect.signature(norm) for norm in (nnf.layer_norm, nnf.group_norm, nnf.rms_norm, nnf.batch_norm)
}  # of the functional forms, which modules call; torch's native functions have other arguments
# Names of torch functions; those of convolutions with their numbers of spatial dimensions.
CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
PRODUCTS = {"mul", "mul_", "multiply", "multiply_", "__mul__", "__rmul__", "__imul__"}
MATRIX_PRODUCTS = {"matmul", "__matmul__", "mm"}
# Names of weights in a decoder, and of those in it that project keys and values from the encoder's tokens.
DECODER = re.compile(r"(?:^|[._])decoder\.(?!weight|bias)")
CROSS_KEYS = re.compile(r"(?:cross|encdec|encoder_attn|encoder_attention)\w*\..*?(?:k|v|key|value)(?:_proj)?\.", re.I)


class Watcher(TorchFunctionMode):
    """While active, passes the rows that enter known weights to a store."""

    def __init__(self, weights: KnownWeights, store: RowStore) -> None:
        super().__init__()
        self._weights, self._store = weights, store
        self._masks: Mapping[str, Tensor] = {}  # of this batch, (n, length) by argument
        self._flat_masks: Mapping[str, Tensor] = {}  # (n * length,)
        self._encodes_and_decodes = False  # whether this batch is for an encoder with a decoder
        # Libraries implement attention anew for every architecture, but all of them make these few calls.
        self._handlers: dict[str, Callable[..., None]] = {
            "linear": self._on_linear, "addmm": self._on_addmm, **dict.fromkeys(CONVOLUTIONS, self._on_conv),
            **dict.fromkeys(PRODUCTS, self._on_product), **dict.fromkeys(MATRIX_PRODUCTS, self._on_matmul),
        }  # fmt: skip

    def begin_batch(self, batch: object) -> None:
        """Set the masks to those of the next batch."""
        arguments = batch if isinstance(batch, Mapping) else {}
        masks = {key: arguments[key] for key in ("attention_mask", "decoder_attention_mask") if key in arguments}
        masks = {key: mask.bool() for key, mask in masks.items() if isinstance(mask, Tensor) and mask.ndim == 2}
        self._masks, self._flat_masks = masks, {key: mask.reshape(-1) for key, mask in masks.items()}
        self._encodes_and_decodes = any(key.startswith("decoder_") or key == "labels" for key in arguments)

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is nnf.multi_head_attention_forward:
            return self._run_attention(ATTENTION_SIGNATURE.bind(*args, **kwargs))
        if func in NORM_SIGNATURES:
            self._on_norm(func, NORM_SIGNATURES[func].bind(*args, **kwargs))
        elif (handler := self._handlers.get(getattr(func, "__name__", ""))) is not None:
            handler(func, *args, **kwargs)
        return func(*args, **kwargs)

    # --- handlers of torch's functions -------------------------------------------------------------------------------

    def _on_linear(self, func: Any, x: Any, weight: Any, *_: Any, **more: Any) -> None:
        use = self._weights.find(weight)
        if use is not None and isinstance(x, Tensor):
            self._record_rows(use, x)

    def _on_addmm(self, func: Any, bias: Any, x: Any, weight: Any, *_: Any, **more: Any) -> None:
        self._on_linear(func, x, weight)

    def _on_matmul(self, func: Any, x: Any, weight: Any, *_: Any, **more: Any) -> None:
        if isinstance(weight, Tensor) and weight.ndim == 2:
            self._on_linear(func, x, weight)

    def _on_conv(
        self, func: Any, x: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> None:  # fmt: skip
        use, sides = self._weights.find(weight), CONVOLUTIONS[func.__name__]
        if use is None or groups != 1:
            return
        x = x if x.ndim == sides + 2 else x[None]  # with a batch dimension
        kernel = tuple(weight.shape[2:])
        steps, gaps = _expand_per_side(stride, sides), _expand_per_side(dilation, sides)
        pads = _count_padding(padding, kernel, gaps)
        kind = ("weight", "conv", repr((steps, gaps, pads, kernel)))
        self._store.add_call(
            use.name,
            x,
            lambda: extract_patches(x, kernel, steps, gaps, pads),
            kind,
            None,
            leading_dims=sides + 1,
        )

    def _on_norm(self, func: Any, call: inspect.BoundArguments) -> None:
        """Record the rows of a norm: its output (..., d) before the scale."""
        use = self._weights.find(call.arguments.get("weight"))
        if use is None or call.arguments["weight"].ndim != 1:
            return
        x = call.arguments["input"]
        call.arguments |= {"weight": None} | ({"bias": None} if "bias" in call.arguments else {})
        channel = -1 if func in {nnf.layer_norm, nnf.rms_norm} else 1
        self._record_scaled(use, x, lambda: func(*call.args, **call.kwargs).movedim(channel, -1))

    def _on_product(self, func: Any, a: Any, b: Any, *_: Any, **more: Any) -> None:
        """Record the rows that a scale multiplies: the other factor of an elementwise product."""
        for weight, x in ((a, b), (b, a)):
            use = self._weights.find(weight)
            if use is None or not isinstance(x, Tensor) or x.ndim < weight.ndim or x.ndim < 2:
                continue
            channel_dims = [i - weight.ndim for i, side in enumerate(weight.shape) if side > 1]  # from the end
            if len(channel_dims) == 1 and x.shape[channel_dims[0]] == weight.numel() and self._weights.find(x) is None:
                self._record_scaled(use, x, partial(x.movedim, channel_dims[0], -1))
            return

    def _run_attention(self, call: inspect.BoundArguments) -> Any:
        """Run packed attention and record the rows that enter its input and output projections."""
        call.apply_defaults()
        arguments = call.arguments
        query, key, value, padding = (arguments[name] for name in ("query", "key", "value", "key_padding_mask"))
        is_self_attention = query is key and key is value
        mask = None
        if is_self_attention and isinstance(padding, Tensor):  # (n, length), true or -inf where keys are padding
            mask = ~padding if padding.dtype == torch.bool else ~padding.isneginf()
            mask = mask.T if mask.ndim == 2 else mask  # the tokens are (length, n, d)
        if arguments["use_separate_proj_weight"]:
            for name, x in (("q_proj_weight", query), ("k_proj_weight", key), ("v_proj_weight", value)):
                if (use := self._weights.find(arguments[name])) is not None:
                    self._record_rows(use, x, mask)
        elif is_self_attention and (use := self._weights.find(arguments["in_proj_weight"])) is not None:
            self._record_rows(use, query, mask)
        weight, bias = arguments["out_proj_weight"], arguments["out_proj_bias"]
        use = self._weights.find(weight)
        if use is None:
            return nnf.multi_head_attention_forward(*call.args, **call.kwargs)
        # With the identity as output projection, attention returns the rows that enter the projection.
        arguments["out_proj_weight"] = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
        arguments["out_proj_bias"] = None
        rows, attention = nnf.multi_head_attention_forward(*call.args, **call.kwargs)
        self._record_rows(use, rows, mask)
        return nnf.linear(rows, weight, bias), attention

    # --- rows ------------------------------------------------------------------------------------------------------

    def _record_rows(self, use: WeightUse, x: Tensor, mask: Tensor | None = None) -> None:
        """Record rows (..., d) that enter a matrix."""
        part = None if use.stop is None else (use.start, use.stop)
        mask = self._find_mask(use.name, x) if mask is None else mask
        rows = x if x.ndim > 1 else x[None]
        self._store.add_call(use.name, x, lambda: rows, ("weight",), mask, part, rows.ndim - 1)

    def _record_scaled(self, use: WeightUse, x: Tensor, view: Callable[[], Tensor]) -> None:
        """Record rows (..., d) that a scale (d,) multiplies."""
        self._store.add_call(
            use.name, x, view, ("scale", use.name), self._find_mask(use.name, x), leading_dims=x.ndim - 1
        )

    def _find_mask(self, name: str, x: Tensor) -> Tensor | None:
        """The mask (*leading) of the rows of ``x`` that are not padding; None if all count."""
        takes_decoder_tokens = self._encodes_and_decodes and DECODER.search(name) and not CROSS_KEYS.search(name)
        argument = "decoder_attention_mask" if takes_decoder_tokens else "attention_mask"
        if (mask := self._masks.get(argument)) is None or x.ndim not in {2, 3}:
            return None
        if x.ndim == 3:
            return mask if x.shape[:2] == mask.shape else None
        return self._flat_masks[argument] if len(x) == mask.numel() else None


def _expand_per_side(value: Any, sides: int) -> tuple[int, ...]:
    """One number per side, from one number for all sides or a number for each."""
    values = tuple(value) if isinstance(value, Sequence) else (value,)
    return values * sides if len(values) == 1 else values


def _count_padding(padding: Any, kernel: Sequence[int], gaps: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The numbers of zeros before and after each side."""
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding == "same":
        spans = [gap * (size - 1) for size, gap in zip(kernel, gaps, strict=True)]
        return tuple((span // 2, span - span // 2) for span in spans)
    return tuple((pad, pad) for pad in _expand_per_side(padding, len(kernel)))


def extract_patches(
    x: Tensor, kernel: Sequence[int], steps: Sequence[int], gaps: Sequence[int], pads: Sequence[tuple[int, int]]
) -> Tensor:
    """The patch under a convolution's kernel at every position: (n, c, *sides) -> (n, *positions, c, *kernel), a view.

    ``pads`` are the numbers of zeros before and after each side.
    """
    sides = len(kernel)
    patches = nnf.pad(x, [count for pair in reversed(pads) for count in pair])
    for i, (size, step, gap) in enumerate(zip(kernel, steps, gaps, strict=True)):
        patches = patches.unfold(2 + i, gap * (size - 1) + 1, step)[..., ::gap]
    return patches.movedim(1, 1 + sides)

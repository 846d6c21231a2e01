"""A CLIP tower as an ONNX graph whose weights are inputs, written without the package ``onnx``.

A file of ONNX is a protobuf message. The few kinds of messages that a graph needs are written here field by field; the
numbers are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np

from merging.base.errors import CheckpointError
from merging.images.image_encoder import EPS
from merging.models.architecture import Architecture

MAX_WEIGHTS = 12_000_000  # of a tower that a browser can merge and run while a slider moves
IR_VERSION, OPSET = 10, 20
FLOAT, INT64 = 1, 7  # types of tensors
IMAGES, FEATURES = "images", "features"  # names of the graph's input and output

Value = int | float | Sequence[int]  # of an attribute


def build_graph(tower: Architecture, shapes: Mapping[str, Sequence[int]]) -> bytes:
    """The ONNX model of a tower, as the bytes of its file.

    Its inputs are "images" (n, 3, H, W), normalized, and every weight under open_clip's name without prefix, as in
    ``shapes`` {name: shape}. Its output "features" is (n, embed_dim), not normalized. All numbers are float32.

    Raises:
        CheckpointError: the tower has more than ``MAX_WEIGHTS`` weights.
    """
    count = sum(int(np.prod(shape)) for shape in shapes.values())
    if count > MAX_WEIGHTS:
        raise CheckpointError(f"The tower has {count:,} weights; a browser takes at most {MAX_WEIGHTS:,}.")
    graph = _Graph()
    tokens, width = (tower.image_size // tower.patch_size) ** 2 + 1, tower.width
    x = _add_stem(graph, tower)
    for index in range(tower.layers):
        x = _add_block(graph, tower, x, f"transformer.resblocks.{index}.", tokens)
    class_tokens = graph.add("Gather", graph.reshape(x, -1, tokens, width), graph.constant(0), axis=1)
    features = graph.norm("ln_post", class_tokens)
    if "proj" in shapes:
        graph.add("MatMul", features, "proj", output=FEATURES)
    else:  # some checkpoints omit it if it was not trained
        graph.add("Identity", features, output=FEATURES)
    return graph.encode(
        {IMAGES: ("n", 3, tower.image_size, tower.image_size), **shapes}, {FEATURES: ("n", tower.embed_dim)}
    )


def _add_stem(graph: _Graph, tower: Architecture) -> str:
    """The tokens (n · T, width) that enter the first block, class token first."""
    side = (tower.patch_size, tower.patch_size)
    patches = graph.add("Conv", IMAGES, "conv1.weight", kernel_shape=side, strides=side)
    patches = graph.add("Transpose", graph.reshape(patches, 0, tower.width, -1), perm=(0, 2, 1))
    rows = graph.add("Concat", graph.add("Shape", IMAGES, end=1), graph.constant([1, tower.width]), axis=0)
    x = graph.add("Concat", graph.add("Expand", "class_embedding", rows), patches, axis=1)
    x = graph.norm("ln_pre", graph.add("Add", x, "positional_embedding"))
    return graph.reshape(x, -1, tower.width)


def _add_block(graph: _Graph, tower: Architecture, x: str, prefix: str, tokens: int) -> str:
    """The tokens (n · T, width) after a residual block."""
    heads, head_width = tower.heads, tower.width // tower.heads
    packed = graph.linear(graph.norm(prefix + "ln_1", x), prefix + "attn.in_proj_weight", prefix + "attn.in_proj_bias")
    split = graph.add("Transpose", graph.reshape(packed, -1, tokens, 3, heads, head_width), perm=(2, 0, 3, 1, 4))
    q, k, v = (graph.add("Gather", split, graph.constant(i), axis=0) for i in range(3))  # each (n, H, T, width / H)
    scores = graph.add("MatMul", q, graph.add("Transpose", k, perm=(0, 1, 3, 2)))
    attention = graph.add("Softmax", graph.add("Mul", scores, graph.constant(head_width**-0.5)), axis=-1)
    mixed = graph.add("Transpose", graph.add("MatMul", attention, v), perm=(0, 2, 1, 3))
    mixed = graph.reshape(mixed, -1, tower.width)
    x = graph.add("Add", x, graph.linear(mixed, prefix + "attn.out_proj.weight", prefix + "attn.out_proj.bias"))
    mlp = prefix + "mlp."
    hidden = graph.linear(graph.norm(prefix + "ln_2", x), mlp + "c_fc.weight", mlp + "c_fc.bias")
    if tower.quick_gelu:
        hidden = graph.add("Mul", hidden, graph.add("Sigmoid", graph.add("Mul", hidden, graph.constant(1.702))))
    else:
        hidden = graph.add("Gelu", hidden)
    return graph.add("Add", x, graph.linear(hidden, mlp + "c_proj.weight", mlp + "c_proj.bias"))


class _Graph:
    """The nodes of a graph and its constants; outputs of nodes are named by numbers."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: dict[str, bytes] = {}

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Value) -> str:
        """A node; returns the name of its output."""
        name = output or f"x{len(self._nodes)}"
        encoded = [_message(5, _attribute(key, value)) for key, value in attributes.items()]
        node = b"".join(_text(1, value) for value in inputs) + _text(2, name) + _text(4, operator) + b"".join(encoded)
        self._nodes.append(_message(1, node))
        return name

    def constant(self, value: Value) -> str:
        """The name of a constant: a whole number or a list of them as int64, a fraction as float32."""
        name = f"constant {value}"
        array = np.array(value, np.float32 if isinstance(value, float) else np.int64)
        kind = FLOAT if isinstance(value, float) else INT64
        dims = b"".join(_number(1, side) for side in array.shape)
        self._constants[name] = _message(5, dims + _number(2, kind) + _text(8, name) + _message(9, array.tobytes()))
        return name

    def reshape(self, x: str, *shape: int) -> str:
        """``x`` in another shape: 0 keeps a side, -1 is what remains."""
        return self.add("Reshape", x, self.constant(list(shape)))

    def norm(self, name: str, x: str) -> str:
        """``x`` (..., d) after layer normalization, scaled and shifted."""
        return self.add("LayerNormalization", x, name + ".weight", name + ".bias", axis=-1, epsilon=EPS)

    def linear(self, x: str, weight: str, bias: str) -> str:
        """Rows (m, d_out) of a linear map of rows ``x`` (m, d_in)."""
        return self.add("Gemm", x, weight, bias, transB=1)

    def encode(self, inputs: Mapping[str, Sequence[int | str]], outputs: Mapping[str, Sequence[int | str]]) -> bytes:
        """The bytes of the model's file; names of sides stand for any number."""
        ports = [
            _message(field, _port(*port)) for field, part in ((11, inputs), (12, outputs)) for port in part.items()
        ]
        graph = b"".join(self._nodes) + _text(2, "tower") + b"".join(self._constants.values()) + b"".join(ports)
        return _number(1, IR_VERSION) + _message(7, graph) + _message(8, _number(2, OPSET))


def _attribute(name: str, value: Value) -> bytes:
    if isinstance(value, float):
        return _text(1, name) + b"\x15" + struct.pack("<f", value) + _number(20, 1)  # field 2, four bytes
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, 2)
    return _text(1, name) + b"".join(_number(8, one) for one in value) + _number(20, 7)


def _port(name: str, shape: Sequence[int | str]) -> bytes:
    """The name, type and shape of an input or output."""
    sides = (_text(2, side) if isinstance(side, str) else _number(1, side) for side in shape)
    dims = b"".join(_message(1, side) for side in sides)
    return _text(1, name) + _message(2, _message(1, _number(1, FLOAT) + _message(2, dims)))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """A whole number, seven bits a byte, lowest first; negative ones as 64 bits in two's complement."""
    value &= (1 << 64) - 1
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])

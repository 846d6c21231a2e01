"""An architecture that a user states because a file does not: sizes, numbers of heads, the activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from merging.base.errors import CheckpointError
from merging.base.text import did_you_mean, printable
from merging.models.families import ACTIVATIONS, GELU, QUICK_GELU

MAX_SIZE = 1_000_000  # of every field
DEFAULT_HEAD_WIDTH = 64  # the default that open_clip omits


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedArchitecture:
    """Sizes (images and patches in pixels), 0 if not stated, and the activation, empty if not stated."""

    image_size: int = 0
    patch_size: int = 0
    width: int = 0
    layers: int = 0
    heads: int = 0
    embed_dim: int = 0
    text_heads: int = 0
    activation: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The fields in a text such as 'heads=12,activation=gelu'; an empty text states none.

        Raises:
            CheckpointError: a field is unknown (the message suggests the nearest one), or its value is invalid.
        """
        names = [field.name for field in fields(cls)]
        values: dict[str, Any] = {}
        for part in filter(None, map(str.strip, text.split(","))):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if name not in names or not equals:
                raise CheckpointError(
                    f"An architecture has no {printable(name, 40)!r}.{did_you_mean(name, names)} Write it as "
                    f"heads=12,activation=gelu; its fields are {', '.join(names)}."
                )
            values[name] = value if name == "activation" else _parse_size(name, value)
        if values.get("activation", QUICK_GELU) not in ACTIVATIONS:
            raise CheckpointError(
                f"An activation is {' or '.join(ACTIVATIONS)}; got {printable(values['activation'], 20)!r}."
            )
        return cls(**values)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """The fields in an architecture's metadata, which has open_clip's fields."""
        vision, text = metadata.get("vision_cfg"), metadata.get("text_cfg")
        width, quick_gelu = read_size(vision, "width"), metadata.get("quick_gelu")
        return cls(
            image_size=read_size(vision, "image_size"),
            patch_size=read_size(vision, "patch_size"),
            width=width,
            layers=read_size(vision, "layers"),
            heads=width // (read_size(vision, "head_width") or DEFAULT_HEAD_WIDTH),
            embed_dim=read_size(metadata, "embed_dim"),
            text_heads=read_size(text, "heads"),
            activation="" if quick_gelu is None else QUICK_GELU if quick_gelu else GELU,
        )

    def text(self) -> str:
        """The fields that are stated, as ``parse`` reads them."""
        return ",".join(f"{name}={value}" for name, value in asdict(self).items() if value)


def read_size(fields: object, name: str) -> int:
    """A size in ``fields``, which are untrusted metadata; 0 if the value is not a valid size."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if type(value) is int and 0 < value <= MAX_SIZE else 0


def _parse_size(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value[:10]) <= MAX_SIZE:
        raise CheckpointError(f"{name} is a whole number from 1 to {MAX_SIZE:,}; got {printable(value, 20)!r}.")
    return int(value)


NOTHING_STATED = StatedArchitecture()

"""What a person states of a model whose file does not: sizes, numbers of heads and the activation, in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from merging.checkpoints.architecture import shown_sizes, stated_by
from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.families import ACTIVATIONS
from merging.checkpoints.views import identity_view
from merging.errors import CheckpointError
from merging.text import did_you_mean, printable

LARGEST = 1_000_000  # of every size
HEAD_WIDTH = 64  # the default that open_clip omits


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedArchitecture:
    """Sizes in pixels and numbers, 0 where unstated, and the activation, empty where unstated."""

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
        """The fields in 'heads=12,activation=gelu'; none for an empty text.

        Raises:
            CheckpointError: an unknown field, with the nearest known one, or a value that it cannot have.
        """
        names = [field.name for field in fields(cls)]
        values: dict[str, Any] = {}
        for part in filter(None, map(str.strip, text.split(","))):
            name, equals, word = (piece.strip() for piece in part.partition("="))
            if name not in names or not equals:
                raise CheckpointError(
                    f"An architecture has no {printable(name, 40)!r}.{did_you_mean(name, names)} Write it as "
                    f"heads=12,activation=gelu; its fields are {', '.join(names)}."
                )
            values[name] = word if name == "activation" else _number(name, word)
        if values.get("activation", ACTIVATIONS[0]) not in ACTIVATIONS:
            raise CheckpointError(
                f"An activation is {' or '.join(ACTIVATIONS)}; got {printable(values['activation'], 20)!r}."
            )
        return cls(**values)

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> Self:
        """The fields in an architecture's metadata, which has open_clip's fields."""
        vision, text = stated.get("vision_cfg"), stated.get("text_cfg")
        width, quick = _size(vision, "width"), stated.get("quick_gelu")
        return cls(
            image_size=_size(vision, "image_size"),
            patch_size=_size(vision, "patch_size"),
            width=width,
            layers=_size(vision, "layers"),
            heads=width // (_size(vision, "head_width") or HEAD_WIDTH),
            embed_dim=_size(stated, "embed_dim"),
            text_heads=_size(text, "heads"),
            activation="" if quick is None else ACTIVATIONS[0 if quick else 1],
        )

    def text(self) -> str:
        """The fields that are stated, as ``parse`` reads them."""
        return ",".join(f"{name}={value}" for name, value in asdict(self).items() if value)


def _size(fields: object, name: str) -> int:
    """A size in metadata, which is untrusted; 0 if it is none."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if type(value) is int and 0 < value <= LARGEST else 0


def _number(name: str, word: str) -> int:
    if not word.isascii() or not word.isdigit() or not 0 < int(word[:10]) <= LARGEST:
        raise CheckpointError(f"{name} is a whole number from 1 to {LARGEST:,}; got {printable(word, 20)!r}.")
    return int(word)


NOTHING_STATED = StatedArchitecture()


def with_architecture(checkpoint: Checkpoint, given: StatedArchitecture, *, sizes: bool = True) -> Checkpoint:
    """The checkpoint with what is stated of it in its metadata; unchanged if nothing is.

    What its file says is kept. Without ``sizes``, only what no shape shows is compared, since a checkpoint of other
    shapes is another matter, and one without a visual tower is no error.

    Raises:
        CheckpointError: its file or its shapes say something else, with both values; or it has no visual tower.
    """
    if given == NOTHING_STATED:
        return checkpoint
    try:
        shown = shown_sizes(checkpoint)
    except CheckpointError:
        if sizes:
            raise
        shown = {}
    own = stated_by(checkpoint)
    if problems := list(_contradictions(given, own, shown, sizes=sizes)):
        raise CheckpointError(
            f"The architecture that was stated is not that of {checkpoint.name}: {'; '.join(problems)}. Leave that out."
        )
    if given.heads and shown and shown["width"] % given.heads:
        raise CheckpointError(
            f"{checkpoint.name} has the width {shown['width']}, which {given.heads} heads cannot share."
        )
    stated: dict[str, Any] = dict(own)
    if given.heads and shown:
        stated["vision_cfg"] = {**own.get("vision_cfg", {}), "head_width": shown["width"] // given.heads}
    if given.text_heads:
        stated["text_cfg"] = {**(own.get("text_cfg") or {}), "heads": given.text_heads}
    if given.activation:
        stated["quick_gelu"] = given.activation == ACTIVATIONS[0]
    view = identity_view(checkpoint)
    view.metadata = {**checkpoint.metadata, "architecture": json.dumps(stated)}
    return view


def _contradictions(
    given: StatedArchitecture, own: Mapping[str, Any], shown: Mapping[str, int], *, sizes: bool
) -> Iterator[str]:
    """What the file says otherwise, with both values."""
    stated = StatedArchitecture.of(own)
    known: dict[str, Any] = dict(shown) if sizes else {}
    if "vision_cfg" in own and shown:
        known["heads"] = shown["width"] // (_size(own["vision_cfg"], "head_width") or HEAD_WIDTH)
    known |= {"text_heads": stated.text_heads, "activation": stated.activation}
    for name, value in asdict(given).items():
        if value and known.get(name) and known[name] != value:
            yield f"{name}={value} was stated, and its file has {name}={known[name]}"

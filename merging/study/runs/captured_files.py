"""The opened files of layer inputs and gradients that a recipe names; the id of the run depends on their digests.

Layer inputs are the rows that enter each layer of an expert on images or texts of its task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

from merging.base.errors import CheckpointError, MergingError, RecipeError
from merging.base.text import first_few
from merging.engine.capture.data_files import DataFile, GradientMeansFile, LayerInputFile
from merging.models.model_references import expert_key, locate
from merging.recipes.recipe import Recipe

OpenedFile = TypeVar("OpenedFile", LayerInputFile, GradientMeansFile)


@dataclass(frozen=True)
class CapturedFiles:
    """Opened files of data by expert; tensors are read on use."""

    layer_inputs: Mapping[str, LayerInputFile] = field(default_factory=dict)
    gradients: Mapping[str, GradientMeansFile] = field(default_factory=dict)

    @classmethod
    def open(cls, recipe: Recipe, base: Path | None) -> Self:
        """The files that a recipe names; relative paths are relative to ``base``.

        Raises:
            NeedsError: a file holds other data. CheckpointError: a file is missing or damaged.
            RecipeError: the recipe names a file of an expert that it does not merge.
        """
        experts = [name for name, _ in recipe.experts]
        named_experts = {name for files in recipe.data_files.to_plain().values() for name in files}
        if unknown := sorted(named_experts - set(experts)):
            raise RecipeError(
                f"The recipe names data files for {first_few(unknown)}, but it does not merge such an expert. Its "
                f"experts are {first_few(experts)}."
            )
        layer_inputs = {
            name: _open_file(LayerInputFile, file, name, base) for name, file in recipe.data_files.layer_inputs
        }
        return cls(
            layer_inputs,
            {name: _open_file(GradientMeansFile, file, name, base) for name, file in recipe.data_files.gradients},
        )

    def __iter__(self) -> Iterator[tuple[str, str, DataFile]]:
        """(kind of data, expert, file) of every file."""
        yield from (("layer_inputs", name, file) for name, file in self.layer_inputs.items())
        yield from (("gradients", name, file) for name, file in self.gradients.items())

    def digests(self) -> dict[str, str]:
        """{"layer_inputs/<expert>": digest} of every file."""
        return {f"{key}/{name}": file.digest() for key, name, file in self}

    def list_doubts(self, digests: Mapping[str, str]) -> tuple[str, ...]:
        """A sentence for each file that was made neither from the expert of its name nor from the pretrained model.

        The pretrained model counts because TATR's sensitivity is computed from it.
        """
        return tuple(
            f"{name}: {file.name} was made from another checkpoint than this expert."
            for key, name, file in self
            if file.model and file.model not in {digests.get(expert_key(name)), digests.get("pretrained")}
        )

    def raise_if_changed(self) -> None:
        """Raise CheckpointError if a file was overwritten after it was opened."""
        for _, _, file in self:
            if file.has_changed():
                raise CheckpointError(
                    f"{file.name} was changed while it was being read; nothing was stored. Run the recipe again."
                )


def _open_file(file_type: type[OpenedFile], file: str, expert: str, base: Path | None) -> OpenedFile:
    """A file, opened; errors name the expert."""
    try:
        return file_type(locate(file, base))
    except MergingError as error:
        raise type(error)(f"{expert}: {error}") from None

"""Files of layer inputs and gradients that a recipe names, for networks that the program cannot run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from merging.base.errors import RecipeError
from merging.base.files.plain_yaml import read_text_field
from merging.methods.method import Method, Needs

Files = tuple[tuple[str, str], ...]  # (expert, file), in order


@dataclass(frozen=True)
class DataFiles:
    """The files of every expert's layer inputs and gradients; empty unless a recipe names some."""

    layer_inputs: Files = ()
    gradients: Files = ()

    @classmethod
    def build(cls, layer_inputs: Any = None, gradients: Any = None) -> Self:
        """The files of mappings {expert: file}. Raises RecipeError for any other form."""
        return cls(_check_files(layer_inputs, "layer_inputs"), _check_files(gradients, "gradients"))

    def select_read(self, methods: Iterable[tuple[Method, Needs]]) -> Self:
        """The files that one of these methods reads."""
        readers = [method for method, _ in methods]
        inputs = self.layer_inputs if any(method.reads_layer_inputs for method in readers) else ()
        return type(self)(inputs, self.gradients if any(method.gradients for method in readers) else ())

    def has_data_for(self, method: Method) -> bool:
        """Whether these files have the data of a method."""
        return bool(self.layer_inputs if method.reads_layer_inputs else method.gradients and self.gradients)

    def of_experts(self, names: Iterable[str]) -> Self:
        """The files of some of the experts."""
        selected = set(names)
        inputs = tuple(pair for pair in self.layer_inputs if pair[0] in selected)
        return type(self)(inputs, tuple(pair for pair in self.gradients if pair[0] in selected))

    def map_paths(self, resolve: Callable[[str], str]) -> Self:
        """The same files, with each path replaced by ``resolve`` of it."""
        inputs = tuple((name, resolve(file)) for name, file in self.layer_inputs)
        return type(self)(inputs, tuple((name, resolve(file)) for name, file in self.gradients))

    def to_plain(self) -> dict[str, dict[str, str]]:
        """{key of a recipe: {expert: file}}, without keys that have no files."""
        files = {"layer_inputs": dict(self.layer_inputs), "gradients": dict(self.gradients)}
        return {key: paths for key, paths in files.items() if paths}


def _check_files(files: Any, key: str) -> Files:
    if files is not None and not isinstance(files, Mapping):
        raise RecipeError(f"In a recipe, {key} is a mapping of expert to file.")
    return tuple(
        (read_text_field(n, "an expert's name"), read_text_field(f, f"a file of {key}"))
        for n, f in (files or {}).items()
    )

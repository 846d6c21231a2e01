"""One stage of a chain: a method's key with its checked parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merging.base.errors import RecipeError
from merging.methods import registry
from merging.methods.method import Method
from merging.methods.params import TABLE, Params
from merging.recipes.chain_rules import shorten

StepSpec = str | tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a chain: a method's key and its complete, checked parameters."""

    key: str
    params: Params

    def to_plain(self) -> dict[str, dict[str, Any]]:
        """{key: {parameter: value}}, with all defaults except those of ``later`` parameters (that old recipes lack)."""
        return {self.key: self.params.to_plain()}

    def text(self) -> str:
        """'ties(density=0.2)': the key and the parameters that differ from their defaults.

        A table (a parameter whose value is a list of rules) is written without its name.
        """
        bounds = self.params.bounds()
        changed = [
            f"{'' if bounds[n].kind == TABLE else f'{n}='}{bounds[n].to_brief_text(v)}"
            for n, v in self.params.effective_values().items()
            if v != bounds[n].default
        ]
        return f"{self.key}({', '.join(changed)})" if changed else self.key


def build_step(role: str, spec: StepSpec) -> Step:
    """A checked edit or adapt from its key, or from its key and parameters. Raises RecipeError for anything else."""
    if isinstance(spec, str):
        spec = (spec, {})
    is_pair = isinstance(spec, Sequence) and len(spec) == 2
    if not is_pair or not isinstance(spec[0], str) or not isinstance(spec[1], Mapping):
        raise RecipeError(f"An {role} is a key, or a key and its parameters; got {shorten(spec)}.")
    key, params = spec
    method: Method = registry.find_adapt(key) if role == "adapt" else registry.find_edit(key)
    return Step(method.key, method.params.build(params, method.key))

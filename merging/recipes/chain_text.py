"""Chains and experts as they are written on a command line: every problem is reported, not only the first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from merging.checkpoints.references import BUNDLED_PREFIX, is_remote, locate
from merging.errors import UnknownMethodError
from merging.methods import registry
from merging.methods.method import Edit, Merge
from merging.text import did_you_mean, printable


def parse_step(role: str, text: str, problems: list[str]) -> tuple[str, dict[str, Any]]:
    """('ties', {'density': 0.1}) from 'ties:density=0.1'; what is wrong is added to ``problems``."""
    key, _, rest = text.partition(":")
    key = key.strip()
    try:
        method: Edit | Merge = registry.edit(key) if role == "edit" else registry.merge(key)
    except UnknownMethodError as error:
        problems.append(str(error))
        return key, {}
    params = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if problem := _problem(method, name, equals, value):
            problems.append(problem)
        else:
            params[name] = method.params.bounds()[name].parse(value)
    return key, params


def _problem(method: Edit | Merge, name: str, equals: str, value: str) -> str:
    """What is wrong with one 'name=value'; empty if nothing is."""
    bounds = method.params.bounds()
    if not equals:
        return f"{method.key}: write parameters as name=value; got {name!r}."
    if name not in bounds:
        names = ", ".join(bounds) or "no parameters"
        return f"{method.key} has no parameter {name!r}; it takes {names}.{did_you_mean(name, bounds)}"
    try:
        accepted = bounds[name].accepts(bounds[name].parse(value))
    except ValueError:
        accepted = False
    return "" if accepted else f"{method.key}.{name} must be {bounds[name].describe()}. Got {value!r} instead."


def parse_experts(texts: Sequence[str], problems: list[str]) -> dict[str, str]:
    """{name: file} from 'name=file', or from a file that gives its own name."""
    experts: dict[str, str] = {}
    if not texts:
        problems.append("Give at least one expert: --expert NAME=FILE.")
    for text in texts:
        name, equals, reference = text.partition("=")
        if not equals:
            name, reference = Path(text.removeprefix(BUNDLED_PREFIX)).stem, text
        if not name or not reference:
            problems.append(f"Write an expert as NAME=FILE; got {text!r}.")
        elif name in experts:
            problems.append(f"Two experts are called {name!r}; give them different names.")
        else:
            experts[name] = reference
            check_file(reference, f"expert {name}", problems)
    return experts


def check_file(reference: str, what: str, problems: list[str]) -> None:
    """Add a problem if there is no such file; problems of a file that exists show when it is opened."""
    if not is_remote(reference) and not os.path.lexists(locate(reference)):
        problems.append(f"The file of {what} was not found: {printable(reference, 300)}.")

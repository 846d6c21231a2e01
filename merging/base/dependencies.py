"""Whether the packages that an installed Mergescope needs are there, in versions that it works with."""

from __future__ import annotations

import shlex
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import Specifier

LOWER_END, UPPER_END = ">=", "<"


def describe_wrong_dependencies(distribution: str = "mergescope") -> str:
    """The packages that are missing or out of range, in a sentence with the command that helps; empty if all fit.

    The ranges are those of the installed distribution. A checkout that is not installed has none.
    """
    try:
        needs = [Requirement(line) for line in metadata.requires(distribution) or ()]
    except metadata.PackageNotFoundError:
        return ""
    needs = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    problems = {str(need): problem for need in needs if (problem := _describe_problem(need))}
    if not problems:
        return ""
    return f"Mergescope needs {', and '.join(problems.values())}: pip install {shlex.join(problems)}"


def _describe_problem(need: Requirement) -> str:
    """What is wrong with a package; empty if nothing is."""
    try:
        version = metadata.version(need.name)
    except metadata.PackageNotFoundError:
        return f"{need.name}, which is not installed"
    broken = [_describe_end(end) for end in need.specifier if not end.contains(version, prereleases=True)]
    return f"{need.name} {' and '.join(sorted(broken))}, but {version} is installed" if broken else ""


def _describe_end(end: Specifier) -> str:
    if end.operator == LOWER_END:
        return f"{end.version} or newer"
    return f"older than {end.version}" if end.operator == UPPER_END else str(end)

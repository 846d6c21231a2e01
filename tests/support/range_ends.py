"""The requirements of `make test-ranges`: one end of each range in pyproject.toml, and what runs the tests.

python tests/support/range_ends.py lowest > FILE
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ENDS = ("lowest", "newest")
RANGE = re.compile(r"([\w-]+)(>=([\d.]+)(?:,<[\d.]+)?)")
PIN = re.compile(r"^([\w-]+)==([\w.]+)$", re.MULTILINE)
TEST_TOOLS = ("pytest", "pytest-xdist", "pytest-rerunfailures", "hypothesis")
PINNED = ("torch", "torchvision")  # other builds for CPUs are not in every index, and those for GPUs are large


class Range(NamedTuple):
    """The versions of a package that pyproject.toml allows."""

    name: str
    text: str  # as pip reads it
    lowest: str


def read_ranges() -> dict[str, list[Range]]:
    """The ranges of each extra; those without an extra have the key ''."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lists = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: [parse_range(line) for line in lines] for extra, lines in lists.items()}


def parse_range(line: str) -> Range:
    if not (match := RANGE.fullmatch(line)):
        raise ValueError(f"pyproject.toml states {line!r}; expected a range such as 'plotly>=6.1,<8'.")
    return Range(*match.groups())


def read_pins(name: str = "requirements.txt") -> dict[str, str]:
    """The exact versions in a file of requirements."""
    return dict(PIN.findall((ROOT / name).read_text("utf-8")))


def list_requirements(end: str) -> list[str]:
    """The lines of the file that pip installs for an end."""
    pins, tools = read_pins(), read_pins("requirements-dev.txt")
    chosen = {name: f"=={tools[name]}" for name in TEST_TOOLS}
    for found in (one for ranges in read_ranges().values() for one in ranges):
        chosen[found.name] = f"=={found.lowest}" if end == "lowest" else found.text
    chosen |= {name: f"=={pins[name]}" for name in PINNED}
    return [name + versions for name, versions in chosen.items()]


if __name__ == "__main__":
    if sys.argv[1:] not in [[end] for end in ENDS]:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(ENDS)}")
    print("\n".join(list_requirements(sys.argv[1])))

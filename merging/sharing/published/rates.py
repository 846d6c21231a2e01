"""How fast files came and images were encoded on this machine, for the next plan: ``rate.json`` of all experiments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from merging.base.files.records import write_json
from merging.sharing.published.fields import read_mapping

FILE = "rate.json"
FETCHED = "rate"  # bytes a second
MEASURABLE = 5.0  # seconds that work takes at least before its rate says something


def encoded(tower: str, device: str) -> str:
    """The name of a rate: images a second that a tower encodes on a device."""
    return f"images of {tower} on {device}"


def merged(tower: str, device: str) -> str:
    """The name of a rate: bytes of models a second that merges read, of that tower on a device."""
    return f"bytes merged of {tower} on {device}"


def rates(folder: Path) -> Mapping[str, float]:
    """All rates by their names."""
    if not (folder / FILE).is_file():
        return {}
    entries = read_mapping(folder / FILE)
    return {name: float(rate) for name, rate in entries.items() if isinstance(rate, int | float) and rate > 0}


def keep_rate(folder: Path, name: str, work: float, seconds: float) -> None:
    """Keep the rate of some work, unless it was too short to say something."""
    if work > 0 and seconds > MEASURABLE:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, {**rates(folder), name: work / seconds})

"""How fast files came and images were encoded on this machine, for the next plan: ``rate.json`` of all experiments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from merging.base.files.records import write_json
from merging.sharing.published.catalogue_fields import read_mapping

RATES_FILE = "rate.json"
FETCHING_RATE = "rate"  # bytes a second
SHORTEST_SECONDS = 5.0  # seconds that work takes at least before its rate says something


def encoding_rate_name(tower: str, device: str) -> str:
    """The name of a rate: images a second that a tower encodes on a device."""
    return f"images of {tower} on {device}"


def merging_rate_name(tower: str, device: str) -> str:
    """The name of a rate: bytes of models a second that merges read, of that tower on a device."""
    return f"bytes merged of {tower} on {device}"


def read_rates(folder: Path) -> Mapping[str, float]:
    """All rates by their names."""
    if not (folder / RATES_FILE).is_file():
        return {}
    entries = read_mapping(folder / RATES_FILE)
    return {name: float(rate) for name, rate in entries.items() if isinstance(rate, int | float) and rate > 0}


def store_rate(folder: Path, name: str, work: float, seconds: float) -> None:
    """Keep the rate of some work, unless it was too short to say something."""
    if work > 0 and seconds > SHORTEST_SECONDS:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / RATES_FILE, {**read_rates(folder), name: work / seconds})

"""Measured rates of downloads, encoding and merging on this machine, for later plans, in ``rate.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from merging.base.files.records import write_json
from merging.sharing.published.catalogue_fields import read_mapping

RATES_FILE = "rate.json"
FETCHING_RATE = "rate"  # bytes a second
SHORTEST_SECONDS = 5.0  # shorter work gives no reliable rate


def encoding_rate_name(tower: str, device: str) -> str:
    """The name of the rate at which a tower encodes images on a device, in images a second."""
    return f"images of {tower} on {device}"


def merging_rate_name(tower: str, device: str) -> str:
    """The name of the rate at which merges read models of a tower on a device, in bytes a second."""
    return f"bytes merged of {tower} on {device}"


def read_rates(folder: Path) -> Mapping[str, float]:
    """All rates by their names."""
    if not (folder / RATES_FILE).is_file():
        return {}
    entries = read_mapping(folder / RATES_FILE)
    return {name: float(rate) for name, rate in entries.items() if isinstance(rate, int | float) and rate > 0}


def store_rate(folder: Path, name: str, work: float, seconds: float) -> None:
    """Store the rate of some work, unless the work was too short."""
    if work > 0 and seconds > SHORTEST_SECONDS:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / RATES_FILE, {**read_rates(folder), name: work / seconds})

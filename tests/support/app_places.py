"""The pages, the keys of the address and the charts of the app, which ``merging/teaching/places.yaml`` lists.

``merging`` knows neither the app nor the charts, so ``lessons check`` reads that list. Run this file to write it again.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from merging.base.files.plain_yaml import write_yaml  # noqa: E402
from merging.teaching.lesson_check import PLACES_FILE  # noqa: E402


def constants(path: Path) -> dict[str, object]:
    """The upper-case names of a file that are set to plain values, with them."""
    found: dict[str, object] = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        if not isinstance(node, ast.Assign):
            continue
        try:
            value = ast.literal_eval(node.value)
        except ValueError:
            continue
        for target in node.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value if isinstance(target, ast.Tuple) else [value]
            found |= {name.id: of for name, of in zip(names, values, strict=True) if isinstance(name, ast.Name)}
    return {name: value for name, value in found.items() if not name.startswith("_")}


def places() -> dict[str, list[str]]:
    """Pages, keys and charts, each in alphabetical order."""
    from app.session.address import KEYS
    from viz.chart_registry import charts

    sections = constants(ROOT / "app" / "main.py")["SECTIONS"]
    assert isinstance(sections, dict)
    return {
        "pages": sorted(entry[0] for entries in sections.values() for entry in entries),
        "keys": sorted(KEYS),
        "charts": sorted({chart.key for chart in charts()}),
    }


if __name__ == "__main__":
    PLACES_FILE.write_text(write_yaml(places()), encoding="utf-8")

"""The eight tasks in miniature, with experts in every layout, beside a source whose figures were computed once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import LoopbackHub

from merging.cli.main import main
from merging.recipes.papers.published_figures import B32, FIGURES, REFERENCES, Figure, Printed
from merging.sharing.published import row_variants as rows_module
from merging.sharing.published.accuracy_verdicts import AGREES, DIFFERS, NOT_COMPARABLE, REPRODUCED, WITHIN_SPLIT
from merging.sharing.published.experiment_catalogue import read_experiment

pytestmark = pytest.mark.full
EIGHT = read_experiment("clip-b32-8")
TASKS = [one.key for one in EIGHT.tasks]
STORED = Path(__file__).with_name("miniature.json")  # accuracies in percent, by row and task
SPLIT = "LwPTV, Tables 2 and 5"  # a source of which some test sets are other images


def stored() -> dict[str, list[float]]:
    """The figures of the miniature source, which this program computed once."""
    return dict(json.loads(STORED.read_text("utf-8")))


def printed(values: list[float], more: float = 0.0) -> Printed:
    values = [value + more for value in values]
    return Printed(sum(values) / len(values), tasks=tuple(values))


def source(figure: Figure, values: Mapping[str, list[float]]) -> Figure | None:
    """A figure of the miniature source in place of FusionBench's: one differs, one is of another split."""
    named = {
        "weight_averaging": "averaging",
        "task_arithmetic": "task_arithmetic",
        "ties": "ties",
        "iso_c": "iso_c/split",
    }
    chain = [key for key, _ in figure.chain]
    if not figure.source.startswith("FusionBench") or figure.model != B32 or len(chain) != 1 or chain[0] not in named:
        return None
    more, whose = (10.0 if chain[0] == "task_arithmetic" else 0.0), SPLIT if chain[0] == "ties" else figure.source
    return replace(figure, source=whose, printed=printed(values[named[chain[0]]], more))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the miniature source be the only one."""
    values, models = stored(), EIGHT.models["hub"]
    monkeypatch.setattr(rows_module, "FIGURES", tuple(filter(None, (source(one, values) for one in FIGURES))))
    references = {
        kind: tuple(
            replace(one, printed=printed(values[kind]))
            for one in REFERENCES[kind]
            if one.experts == models.authors or (kind == "pretrained" and one.source.startswith("FusionBench"))
        )
        for kind in ("pretrained", "individual")
    }
    monkeypatch.setattr(rows_module, "REFERENCES", references)
    monkeypatch.setattr(rows_module, "EXPERTS", {(models.authors, B32): printed(values["individual"])})


def run(capsys: Any, *words: str) -> tuple[int, dict[str, Any], str]:
    code = main(["published", "run", *words, "--yes", "--json"])
    out = capsys.readouterr()
    return code, json.loads(out.out), out.err


@pytest.mark.parametrize("hub", ["clip-b32-8"], indirect=True)
def test_a_table_with_a_verdict_of_each_kind(hub: LoopbackHub, figures: None, capsys: Any) -> None:
    words = ("clip-b32-8", "--images", "all", "--rows", "averaging,task_arithmetic,ties,iso_c")
    code, table, err = run(capsys, *words, "--expect", "reproduced")
    got = {row["key"]: [line["ours"] for line in row["tasks"]] for row in table["rows"]}
    assert table["gate"]["passed"], got
    verdicts = {row["key"]: row["in_domain"]["verdict"] for row in table["rows"]}
    assert verdicts == {
        "pretrained": REPRODUCED, "individual": REPRODUCED, "averaging": REPRODUCED, "task_arithmetic": DIFFERS,
        "ties": WITHIN_SPLIT, "iso_c/packed": NOT_COMPARABLE, "iso_c/split": REPRODUCED,
    }  # fmt: skip
    assert code == 1 and len(table["rows"][3]["in_domain"]["differ_most"]) == 3
    assert got["iso_c/split"] != got["iso_c/packed"]
    asked = len(hub.requests)
    code, some, err = run(capsys, *words[:3], "--rows", "averaging,ties", "--expect", "reproduced")
    assert code == 0 and len(hub.requests) == asked, err
    assert [row["in_domain"] for row in some["rows"]] == [
        row["in_domain"] for row in table["rows"] if row["key"] in {"pretrained", "individual", "averaging", "ties"}
    ]


def test_a_drawn_part_agrees(hub: LoopbackHub, figures: None, capsys: Any) -> None:
    code, table, err = run(capsys, "smoke", "--images", "30", "--rows", "averaging")
    assert code == 0, err
    assert [row["in_domain"]["verdict"] for row in table["rows"]] == [AGREES, AGREES, NOT_COMPARABLE]
    assert table["rows"][0]["in_domain"]["reason"] == "on 30 of each"


if __name__ == "__main__":  # python -m tests... TABLE.json: writes the figures anew from the table of a run
    import sys

    made = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    lines = {row["key"]: [line["ours"] for line in row["tasks"]] for row in made["rows"]}
    STORED.write_text(json.dumps(lines, indent=1) + "\n", "utf-8")

"""What is written holds texts from outside exactly, and does nothing in a spreadsheet, a terminal or a viewer."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest
import tiny
from hostile_texts import INVISIBLE, TEXTS, active

from merging.base.files.tables import FORMULA_STARTS, csv_bytes, read_table, write_table
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store

ODD = {**TEXTS, "return": "\r", "line": "\n", "tab": "\t=1", "quote": '"', "missing": "NA", "empty": "", "number": "1"}


@pytest.mark.parametrize("name", ODD)
def test_a_stored_table_gives_the_text_back(name: str, tmp_path: Path) -> None:
    table = pd.DataFrame({"text": [ODD[name], "other"], "n": [1, 2], "share": [0.5, 1.5]})
    schema = write_table(tmp_path, "texts", table)
    back = read_table(tmp_path / "tables" / "texts.csv", schema)
    assert back["text"].tolist() == table["text"].tolist()
    assert back["n"].tolist() == [1, 2] and back["share"].tolist() == [0.5, 1.5]


@pytest.mark.parametrize("name", ODD)
def test_a_download_holds_no_formula(name: str) -> None:
    table = pd.DataFrame({"text": [ODD[name], "other"], ODD[name] or "column": [1, 2]})
    rows = list(csv.reader(io.StringIO(csv_bytes(table).decode(), newline="")))
    assert len(rows) == 3
    for shown, text in ((rows[1][0], ODD[name]), (rows[0][1], ODD[name] or "column")):
        assert not shown.startswith(FORMULA_STARTS) and shown.removeprefix("'") == text.removeprefix("'")


@pytest.mark.parametrize("name", TEXTS)
def test_a_recipe_gives_the_text_back(name: str) -> None:
    recipe = Recipe.build("ties", {}, [], "base.pt", {TEXTS[name]: "a.pt", "other": "b.pt"}, TEXTS[name])
    back = Recipe.from_yaml(recipe.to_yaml())
    assert back == recipe and back.title == TEXTS[name]


@pytest.mark.full
def test_every_file_of_a_run_can_be_read(hostile_library: Path) -> None:
    runs = Store(libraries=(hostile_library / "runs",)).list_runs()
    experts = {name for run in runs if run.recipe for name, _ in run.recipe.experts}
    assert len(set(TEXTS.values()) & experts) >= len(TEXTS) - 4  # the names of the first run are those of its tasks
    for run in runs:
        for name in run.tables:
            assert len(run.table(name)) > 0
        for path in run.path.rglob("*.json"):
            json.loads(path.read_text("utf-8"), parse_constant=pytest.fail)


@pytest.mark.full
@pytest.mark.parametrize("start", range(0, len(TEXTS), 4))
def test_a_model_card_holds_no_markup(start: int, tiny_benchmark: Benchmark, tmp_path: Path) -> None:
    texts = [list(TEXTS.values())[(start + place) % len(TEXTS)] for place in range(4)]
    experts = dict(zip(texts, tiny_benchmark.experts.values(), strict=True))
    recipe = Recipe.build("ties", {}, [], tiny_benchmark.pretrained, experts, texts[0])
    run = execute(recipe, Store(tmp_path / "store", libraries=()))
    export(run, tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text("utf-8")
    assert card.count("\n---\n") == 1 and "license: mit" not in card.split("\n---\n")[0]
    assert not INVISIBLE.search(card)
    outside = re.sub(r"^(`{3,}).*?^\1$", "", card.split("\n---\n")[1], flags=re.MULTILINE | re.DOTALL)
    assert not [part for part in active(outside) if not part.startswith("# ")]
    names = [path.relative_to(tmp_path / "export").as_posix() for path in (tmp_path / "export").rglob("*")]
    assert all(name.isascii() and name.isprintable() for name in names)


COMMANDS = [
    ["merge", "{base}", "--expert", "{text}={file}", "--merge", "{text}"],
    ["merge", "{base}", "--expert", "{text}={file}", "--merge", "ties", "--set", "{text}=1"],
    ["merge", "{text}", "--expert", "a={file}", "--merge", "ties"],
    ["merge", "{base}", "--expert", "a={file}", "--adapt", "{text}", "--test-data", "{text}:{text}=1"],
    ["fit", "{base}", "{text}={file}"],
    ["inspect", "{text}"],
    ["run", "{text}"],
    ["measure", "{text}", "{text}"],
    ["sweep", "{text}"],
    ["export", "{text}", "--out", "{text}"],
    ["evaluate", "{text}"],
    ["benchmark", "check", "{text}"],
    ["{text}"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_the_command_line_writes_no_control_character(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    family = tiny.write_family(tmp_path / "family", experts=("digits",))
    for name, text in TEXTS.items():
        if "\0" in text:  # no argument can hold it
            continue
        words = [word.format(base=family.pretrained, file=family.experts["digits"], text=text) for word in command]
        code = main(words)
        shown = "".join(capsys.readouterr())
        assert code in {0, 1, 2}, name
        assert "Traceback" not in shown, name
        assert not INVISIBLE.search(shown.replace("\t", "")), (name, shown[:500])

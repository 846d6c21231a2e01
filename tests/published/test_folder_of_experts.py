"""Experts in a folder of the user's: what they are called, and what no paper prints of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from merging.base.errors import HubError
from merging.recipes.papers.published_figures import ILHARCO, REFERENCES
from merging.sharing.published.accuracy_verdicts import NOT_COMPARABLE, REPRODUCED, TaskScore
from merging.sharing.published.choice import Choice, find_models, make_choice, narrow_experiment
from merging.sharing.published.comparison_table import MeasuredRow, PublishedTable, build_table
from merging.sharing.published.experiment_catalogue import read_experiment
from merging.sharing.published.published_benchmark import describe_benchmark
from merging.sharing.published.repository_lock import Lock
from merging.sharing.published.row_variants import INDIVIDUAL, PRETRAINED, find_printed_experts

EIGHT, SMOKE, MANY = (read_experiment(key) for key in ("clip-b32-8", "smoke", "clip-b32-14"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ViT-B-32").mkdir()
    return tmp_path / "ViT-B-32"


def of(one: Any, folder: Path, **options: Any) -> Choice:
    return make_choice(one, experts=str(folder), images="all", **options)


def made(one: Any, choice: Choice, **percents: list[float]) -> PublishedTable:
    one = narrow_experiment(one, choice)
    rows = [
        MeasuredRow(
            row, {each.key: TaskScore(each.key, x / 100, 10_000) for each, x in zip(one.tasks, values, strict=True)}
        )
        for row, values in percents.items()
    ]
    return build_table(one, choice, find_models(one, choice), rows, device="one CPU")


def test_a_folder_is_kept_with_its_whole_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert make_choice(EIGHT, experts="ViT-B-32").experts == str(folder.resolve())
    assert make_choice(EIGHT, experts="published").experts == "published"


@pytest.mark.parametrize("one", [EIGHT, SMOKE, MANY], ids=lambda one: one.key)
def test_a_folder_is_not_called_by_another_s_name(one: Any, folder: Path) -> None:
    used, others = find_models(one, of(one, folder)), one.models.values()
    assert used.title == "experts in the folder ViT-B-32" and used.authors == ILHARCO
    assert used.note.startswith("The origin of these experts is unknown")
    assert used.title not in {each.title for each in others}


def test_what_is_printed_of_other_files_is_not_said_of_a_folder_s(folder: Path) -> None:
    assert MANY.printed and narrow_experiment(MANY, make_choice(MANY)).printed
    assert narrow_experiment(MANY, of(MANY, folder)).printed is None
    few = narrow_experiment(MANY, of(MANY, folder, tasks=["mnist", "pcam"]))
    assert few.printed is None and len(few.tasks) == 2
    values = list(MANY.printed.experts.values())
    table = made(MANY, of(MANY, folder), individual=values)
    assert not table.gate.known and "No source prints these experts' own accuracies" in table.notes[0]
    assert table.rows[0].in_domain.verdict.word == NOT_COMPARABLE and table.rows[0].in_domain.printed is None


def test_the_gate_decides_whether_a_folder_is_the_papers(folder: Path) -> None:
    choice, tower = of(EIGHT, folder), EIGHT.models["hub"].tower
    own = list(find_printed_experts(EIGHT, tower, ILHARCO).values())
    (plain,) = [list(one.printed.tasks) for one in REFERENCES["pretrained"]
                if one.experts == ILHARCO and one.model == tower and one.printed.tasks][:1]  # fmt: skip
    same = made(EIGHT, choice, **{PRETRAINED: plain, INDIVIDUAL: own})
    assert same.gate.passed and same.models == f"experts in the folder ViT-B-32 (compared with those of {ILHARCO})"
    assert all(row.in_domain.verdict.word != NOT_COMPARABLE for row in same.rows)
    other = made(EIGHT, choice, **{PRETRAINED: plain, INDIVIDUAL: [x - 5 for x in own]})
    assert [row.in_domain.verdict.text for row in other.rows] == ["not comparable: other experts"] * 2
    hub = made(
        EIGHT, make_choice(EIGHT, images="all"), **{PRETRAINED: [63.2, 59.8, 60.7, 46.0, 31.6, 32.5, 48.2, 43.9]}
    )
    assert hub.rows[0].in_domain.verdict.word == REPRODUCED  # that of the Hub needs no experts to be known


def test_a_folder_without_an_expert_names_the_file(folder: Path) -> None:
    twenty = read_experiment("clip-b32-20")
    for one in (twenty, SMOKE):
        with pytest.raises(HubError, match=r"ViT-B-32 has no zeroshot.pt: it is not a folder of the papers' experts"):
            describe_benchmark(one, of(one, folder), Lock())
    (folder / "zeroshot.pt").touch()
    with pytest.raises(HubError, match=r"has no emnist_letters/finetuned.pt"):
        describe_benchmark(
            narrow_experiment(twenty, choice := of(twenty, folder, tasks=["emnist_letters"])), choice, Lock()
        )

"""Models & runs, published experiments: the plan, what the server may do, the job, the table, and its downloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import LoopbackHub
from page_harness import labels, press, words
from smoke_files import add_smoke
from streamlit.testing.v1 import AppTest

from merging.base.errors import TaskError
from merging.base.settings import HUB_VARIABLE
from merging.cli.main import main
from merging.sharing.published.accuracy_verdicts import TaskScore
from merging.sharing.published.choice import make_choice
from merging.sharing.published.comparison_table import MeasuredRow
from merging.sharing.published.experiment_catalogue import read_experiment
from merging.sharing.published.experiment_run import find_folders
from merging.sharing.published.experiment_steps import store_choice
from merging.sharing.published.experiment_texts import command_words
from merging.sharing.published.measured_rows import MeasuredFiles, MeasuredTable, write_measured
from merging.sharing.published.row_variants import INDIVIDUAL, PRETRAINED, list_variants
from merging.study.run_queue import RunQueue
from merging.tasks.queue.job_kinds import PUBLISHED

SMOKE = read_experiment("smoke")
HERE = {"models_view": "data", "benchmark_source": "published experiments", "experiment": "smoke"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    with LoopbackHub() as server:
        add_smoke(server)
        server.connect(monkeypatch, tmp_path / "home")
        yield server


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Jobs that would have been queued."""
    queued: list[tuple[Any, ...]] = []
    monkeypatch.setattr(RunQueue, "submit_command", lambda self, *words: queued.append(words))
    return queued


def keep_table(store: Path, images: str = "all") -> None:
    """What a run of the experiment leaves: its choice, and accuracies that are those printed."""

    def scores(mnist: float, eurosat: float) -> dict[str, TaskScore]:
        pairs = zip(SMOKE.tasks, (mnist, eurosat), strict=True)
        return {one.key: TaskScore(one.key, percent / 100, 10_000) for one, percent in pairs}

    choice, place = make_choice(SMOKE, images=images), find_folders("smoke", store)
    store_choice(place, choice)
    rows = [(PRETRAINED, (48.2, 46.0)), (INDIVIDUAL, (99.6, 99.0))]
    kept = MeasuredTable("one CPU", "", choice, {}, MeasuredFiles((), ()))
    for key, percents in rows:
        kept = kept.with_row(MeasuredRow(key, scores(*percents), run="abc"))
    for variant in list_variants(SMOKE, choice):
        kept = kept.with_row(MeasuredRow(variant, scores(90.0, 80.0), run="abc"))
    write_measured(place.folder, kept)


def rows_of(at: AppTest, alt: str) -> Any:
    return next(one.value for one in at.dataframe if alt in one.proto.alt)


def test_a_server_that_may_not_download_shows_the_command(
    open_app: Any, library: Path, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(HUB_VARIABLE, "cached")
    at = open_app("models", library, **HERE)
    assert not at.exception and not at.error
    needs = rows_of(at, "Repositories")
    assert list(needs["License"]) == ["none stated"] * 3 + ["not read yet", "none stated"]
    assert needs["Size"].iloc[0] == "≈ 605 MB"
    said = words(at)
    assert f"started with `{HUB_VARIABLE}=cached`" in said and "On the disk: nothing" in said
    at.number_input(key="pub_images_smoke").set_value(12)
    at.multiselect(key="pub_rows_smoke").set_value(["ties"]).run()
    command = f"{HUB_VARIABLE}=on mergescope published run smoke --images 12 --rows ties"
    assert f"{command} --store {tmp_path / 'store'}" in [block.value for block in at.code]  # which is not the usual one
    monkeypatch.delenv("MERGESCOPE_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "usual"))
    assert command in [block.value for block in at.run().code]
    assert not [label for label in labels(at, "button") if "etch" in label or "Read" in label]
    assert hub.requests == []


@pytest.mark.full
def test_cards_are_read_before_the_question(
    open_app: Any, library: Path, hub: LoopbackHub, commands: list[tuple[Any, ...]]
) -> None:
    at = open_app("models", library, **HERE)
    assert "Fetch and compute" not in labels(at, "button") and hub.requests == []
    press(at, "Read licenses and sizes")
    assert not at.exception and not at.error and hub.fetched() == {}
    needs = rows_of(at, "Repositories")
    assert list(needs["License"]) == ["none stated"] * 3 + ["mit", "none stated"]
    assert all(len(commit) == 12 for commit in needs["Commit"])
    assert f"**Fetch 3 MB from {hub.host.replace('.', chr(92) + '.').replace(':', chr(92) + ':')}**" in words(at)
    press(at, "Only fetch")
    at.checkbox(key="pub_all_smoke").check().run()
    press(at, "Fetch and compute")
    (first, second) = commands
    assert first[:2] == second[:2] == (PUBLISHED, "smoke") and first[-1] == second[-1] == ""  # on no benchmark
    assert first[3] == ["published", "fetch", "smoke", "--images", "1000", "--yes"]
    assert second[3] == ["published", "run", "smoke", "--images", "all", "--yes", "--device", "auto"]


def test_what_the_hub_refuses_is_said(open_app: Any, library: Path, hub: LoopbackHub) -> None:
    hub.repositories.pop(("dataset", "ylecun/mnist"))
    at = open_app("models", library, **HERE)
    press(at, "Read licenses and sizes")
    assert "There is no public data set ylecun" in at.error[0].value and not at.exception


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"images": "all", "outside": True, "seed": 3},
        {"imagenet": True, "rows": ["lot", "ties"], "exemplars": 8},
        {"experts": "published", "tasks": ["mnist", "dtd"], "outside": True, "wording": "hub"},
    ],
)
def test_the_command_to_type_makes_the_same_choice(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    eight, made = read_experiment("clip-b32-8"), []
    choice = make_choice(eight, **options)

    def planned(chosen: Any, choice: Any, *_: Any, **__: Any) -> None:
        made.append(choice)
        raise TaskError("This is enough.")

    monkeypatch.setattr("merging.sharing.published.experiment_steps.make_plan", planned)
    assert main(command_words("plan", eight, choice)) == 1
    assert made == [choice]


def test_the_table_is_shown_and_downloaded_as_it_is(
    open_app: Any, library: Path, hub: LoopbackHub, tmp_path: Path
) -> None:
    keep_table(tmp_path / "store")
    at = open_app("models", library, **HERE)
    assert not at.exception and not at.error
    table = rows_of(at, "Averages").set_index("Row")
    assert table.loc["Pretrained", "Verdict"] == "reproduced" and table.loc["Pretrained", "Printed"] == "47.1*"
    assert "not comparable" in table.loc["Ties", "Verdict"] and table.loc["Ties", "Printed"] == "(72.2)"
    assert len(rows_of(at, "task by task")) == 10
    said = words(at)
    assert "on all images, seed 0, one CPU" in said and "experts are within 1 point" in said
    assert at.checkbox(key="pub_all_smoke").value  # the fields show what ran here
    assert labels(at, "download_button")[-2:] == ["Table (Markdown)", "Table (CSV)"]
    assert "Open its benchmark" not in labels(at, "button")  # there is none yet


def test_another_choice_than_the_measured_one_is_not_computed(
    open_app: Any, library: Path, hub: LoopbackHub, tmp_path: Path
) -> None:
    keep_table(tmp_path / "store", "100")
    store_choice(find_folders("smoke", tmp_path / "store"), make_choice(SMOKE, images="all"))  # that run was stopped
    at = open_app("models", library, **HERE)
    from app.reading.papers import experiments

    assert experiments.is_computed(SMOKE, make_choice(SMOKE, images="100"))
    assert not experiments.is_computed(SMOKE, make_choice(SMOKE, images="all"))
    assert not at.exception and "on 100 of each, seed 0, one CPU" in words(at)


def test_an_empty_or_wrong_folder_of_experts_is_no_choice(
    open_app: Any, library: Path, hub: LoopbackHub, tmp_path: Path
) -> None:
    at = open_app("models", library, **HERE)
    at.selectbox(key="pub_experts_smoke").set_value("a folder").run()
    assert not at.exception and not at.error and "Type the folder of the experts" in words(at)
    assert not any("Repositories" in one.proto.alt for one in at.dataframe) and hub.requests == []
    own = tmp_path / "ViT-B-32"
    own.mkdir()
    at.text_input(key="pub_folder_smoke").set_value(str(own)).run()
    assert not at.exception and "zeroshot" in at.error[0].value
    for name in ("zeroshot.pt", "MNIST/finetuned.pt", "EuroSAT/finetuned.pt"):
        (own / name).parent.mkdir(exist_ok=True)
        (own / name).write_bytes(b"x" * 1000)
    at.run()
    needs = rows_of(at, "Repositories")
    assert not at.exception and not at.error and list(needs["Here"])[:3] == ["all"] * 3
    assert list(needs["For"])[:4] == ["pretrained", "expert for MNIST", "expert for EuroSAT", "text tower"]
    assert "Read licenses and sizes" in labels(at, "button")


def test_a_table_that_cannot_be_read_is_an_error_and_not_an_exception(
    open_app: Any, library: Path, hub: LoopbackHub, tmp_path: Path
) -> None:
    keep_table(tmp_path / "store")
    (tmp_path / "store" / "published" / "smoke" / "measured.json").write_text("{", "utf-8")
    at = open_app("models", library, **HERE)
    assert not at.exception and "measured" in at.error[0].value


def test_beside_a_published_tower_only_its_own_figures_stand(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.reading.papers import published_tables
    from merging.recipes.papers.published_figures import FIGURES, L14

    open_app("home", library)
    towers = {tower for row in published_tables.match_rows(FIGURES, []) for tower in row.figures}
    assert len(towers) > 2 and published_tables.main_tower() == "ViT-B/32"  # the miniature is of no published tower
    monkeypatch.setattr(published_tables, "benchmark_tower", lambda: L14)
    rows = published_tables.match_rows(FIGURES, [])
    assert rows and {tower for row in rows for tower in row.figures} == {L14} and published_tables.main_tower() == L14

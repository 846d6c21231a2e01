"""The command ``published`` lists, plans, fetches from a Hub on this machine, and prints what was computed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import LoopbackHub

from merging.cli.main import main
from merging.sharing.published.accuracy_verdicts import TaskScore
from merging.sharing.published.choice import make_choice
from merging.sharing.published.comparison_table import MeasuredRow
from merging.sharing.published.experiment_catalogue import list_experiment_keys, read_experiment
from merging.sharing.published.experiment_run import ExperimentFolders, find_folders
from merging.sharing.published.experiment_steps import pin_repositories, store_choice
from merging.sharing.published.measured_rows import MeasuredFiles, MeasuredTable, read_measured, write_measured
from merging.sharing.published.row_variants import INDIVIDUAL, PRETRAINED, list_variants

SMOKE = read_experiment("smoke")
VISION = "tanganke/clip-vit-base-patch32"
MODELS = {
    "openai/clip-vit-base-patch32": {"config.json": b"{}", "pytorch_model.bin": b"p" * 900, "tf_model.h5": b"no"},
    f"{VISION}_mnist": {"config.json": b"{}", "model.safetensors": b"m" * 700},
    f"{VISION}_eurosat": {"config.json": b"{}", "model.safetensors": b"e" * 800},
}
DATA = {
    "ylecun/mnist": {"mnist/test-00000-of-00001.parquet": b"t" * 500, "mnist/train-00000-of-00001.parquet": b"no"},
    "tanganke/eurosat": {"data/test-00000-of-00001.parquet": b"u" * 600, "data/contrast-0.parquet": b"no"},
}
NEEDED = 2 * 3 + 900 + 700 + 800 + 500 + 600


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    with LoopbackHub() as server:
        for name, files in MODELS.items():
            server.add("model", name, files)
        for name, files in DATA.items():
            server.add("dataset", name, files, license="mit" if "mnist" in name else None)
        server.connect(monkeypatch, tmp_path / "home")
        yield server


def call(capsys: Any, *words: str) -> tuple[int, str, str]:
    code = main(["published", *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_every_experiment_is_listed(hub: LoopbackHub, capsys: Any) -> None:
    code, out, _ = call(capsys)
    assert code == 0 and all(key in out for key in list_experiment_keys()) and "≈ 1.32 GB" in out
    code, out, _ = call(capsys, "--json")
    assert [each["experiment"] for each in json.loads(out)] == list(list_experiment_keys())
    assert hub.requests == []  # nothing is asked for a list


def test_a_plan_asks_for_nothing_and_names_the_host(hub: LoopbackHub, capsys: Any) -> None:
    code, out, _ = call(capsys, "plan", "smoke", "--images", "100", "--json")
    plan = json.loads(out)
    assert (code, plan["host"], plan["images"], plan["to_fetch"]) == (0, hub.host, 200, 1_316_300_000)
    assert hub.requests == []


def test_what_is_fetched_once_is_pinned_and_not_asked_for_again(hub: LoopbackHub, capsys: Any, tmp_path: Path) -> None:
    code, out, err = call(capsys, "fetch", "smoke", "--yes")
    assert code == 0, err
    assert "mit" in out and f"To fetch from {hub.host}: {NEEDED / 1000:.3g} kB" in out  # exact now, licenses were read
    lock = json.loads((tmp_path / "store/published/smoke/lock.json").read_text("utf-8"))
    assert set(lock["repositories"]) == {*MODELS, *DATA}
    assert all(len(each["revision"]) == 40 for each in lock["repositories"].values())
    asked = len(hub.requests)
    assert asked and not any("train-" in name or "contrast" in name or ".h5" in name for name in hub.fetched())
    code, out, _ = call(capsys, "fetch", "smoke", "--yes", "--json")
    assert (code, json.loads(out)["bytes"], len(hub.requests)) == (0, NEEDED, asked)
    hub.add("model", f"{VISION}_mnist", {"config.json": b"{}", "model.safetensors": b"n" * 700})  # the branch moves
    assert call(capsys, "fetch", "smoke", "--yes")[0] == 0 and len(hub.requests) == asked
    assert call(capsys, "fetch", "smoke", "--yes", "--latest")[0] == 0
    moved = json.loads((tmp_path / "store/published/smoke/lock.json").read_text("utf-8"))
    assert moved["latest"] == [f"{VISION}_mnist"]


def test_a_commit_is_asked_for_once(hub: LoopbackHub) -> None:
    first = pin_repositories(SMOKE, make_choice(SMOKE), find_folders("smoke"))
    asked = len(hub.requests)
    assert (
        pin_repositories(SMOKE, make_choice(SMOKE), find_folders("smoke")) == first and len(hub.requests) == asked == 5
    )


def test_files_go_to_a_folder_that_another_machine_reads(hub: LoopbackHub, capsys: Any, tmp_path: Path) -> None:
    folder = tmp_path / "carried"
    assert call(capsys, "fetch", "smoke", "--yes", "--into", str(folder))[0] == 0
    hub.stop()
    code, out, _ = call(capsys, "plan", "smoke", "--from", str(folder), "--json")
    assert code == 0 and json.loads(out)["to_fetch"] == 0


def test_a_folder_to_carry_has_what_was_pinned_before(hub: LoopbackHub, capsys: Any, tmp_path: Path) -> None:
    folder = tmp_path / "carried"
    assert call(capsys, "fetch", "smoke", "--yes")[0] == 0
    assert call(capsys, "fetch", "smoke", "--yes", "--into", str(folder))[0] == 0
    lock = "published/smoke/lock.json"
    assert (folder / lock).read_text("utf-8") == (tmp_path / "store" / lock).read_text("utf-8")


@pytest.mark.parametrize("action", ["plan", "run"])
def test_a_folder_that_was_not_fetched_into_is_refused(
    hub: LoopbackHub, capsys: Any, tmp_path: Path, action: str
) -> None:
    folder = tmp_path / "carried"
    for problem in ("carried is not a folder.", "carried has no published/smoke/lock.json."):
        code, _, err = call(capsys, action, "smoke", "--from", str(folder), *(["--yes"] if action == "run" else []))
        assert code == 2 and problem in err and "`published fetch smoke --into FOLDER` writes" in err, err
        folder.mkdir(exist_ok=True)
    assert hub.requests == [] and not list(folder.iterdir())


def test_a_folder_of_experts_is_in_the_plan_and_looked_into_before_anything_is_asked(
    hub: LoopbackHub, capsys: Any, tmp_path: Path
) -> None:
    own = tmp_path / "ViT-B-32"
    own.mkdir()
    for words in (["plan", "smoke"], ["run", "smoke", "--yes"]):
        code, _, err = call(capsys, *words, "--experts", str(own))
        assert code == 1 and "ViT-B-32 has no zeroshot.pt: it is not a folder of the papers' experts" in err, err
    assert hub.requests == []
    for number, name in enumerate(("zeroshot.pt", "MNIST/finetuned.pt", "EuroSAT/finetuned.pt"), 1):
        (own / name).parent.mkdir(exist_ok=True)
        (own / name).write_bytes(b"x" * 1000 * number)
    code, out, _ = call(capsys, "plan", "smoke", "--experts", str(own))
    lines = [line.split() for line in out.splitlines()]
    assert code == 0 and ["pretrained", str(own), "zeroshot.pt", "1", "kB", "all"] in lines
    assert ["expert", "for", "EuroSAT", str(own), "EuroSAT/finetuned.pt", "3", "kB", "all"] in lines
    code, out, _ = call(capsys, "plan", "smoke", "--experts", str(own), "--json")
    plan = json.loads(out)
    assert [each["nbytes"] for each in plan["own"]] == [1000, 2000, 3000] and plan["here"] == 0
    assert "own" in plan and not any("expert" in each["purpose"] for each in plan["repositories"])


def test_newer_commits_are_pinned_only_after_a_yes(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, lock = f"{VISION}_mnist", find_folders("smoke").folder / "lock.json"
    assert call(capsys, "fetch", "smoke", "--yes")[0] == 0
    before = lock.read_text("utf-8")
    hub.add("model", name, {"config.json": b"{}", "model.safetensors": b"n" * 700})  # the branch moves
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    code, out, err = call(capsys, "run", "smoke", "--latest")
    assert code == 1 and "Nothing was fetched." in err and lock.read_text("utf-8") == before
    old = json.loads(before)["repositories"][name]["revision"]
    (line,) = [line for line in out.splitlines() if name in line]
    assert old[:12] not in line and "To fetch from" in out  # the plan is of the new commit
    assert call(capsys, "fetch", "smoke", "--yes", "--latest")[0] == 0
    new = json.loads(lock.read_text("utf-8"))
    assert new["latest"] == [name] and new["repositories"][name]["revision"][:12] in line


def test_a_folder_that_is_read_from_changes_nothing_that_is_pinned_here(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, lock = tmp_path / "carried", find_folders("smoke").folder / "lock.json"
    assert call(capsys, "fetch", "smoke", "--yes")[0] == 0
    before = lock.read_text("utf-8")
    hub.add("model", f"{VISION}_mnist", {"config.json": b"{}", "model.safetensors": b"n" * 700})
    assert call(capsys, "fetch", "smoke", "--yes", "--latest", "--into", str(folder))[0] == 0
    assert json.loads((folder / "published/smoke/lock.json").read_text("utf-8"))["latest"] == [f"{VISION}_mnist"]
    monkeypatch.setattr(
        "merging.sharing.published.experiment_steps.run_steps", lambda *_: None
    )  # stopped before its first row
    assert call(capsys, "run", "smoke", "--from", str(folder))[0] == 1
    assert lock.read_text("utf-8") == before


def test_without_a_connection_the_way_out_is_named(hub: LoopbackHub, capsys: Any) -> None:
    hub.stop()
    code, _, err = call(capsys, "run", "smoke", "--yes")
    assert code == 1 and f"smoke needs about 1.32 GB from {hub.host} (pretrained, expert for MNIST" in err
    assert "`published fetch smoke --into FOLDER`; then on this machine `published run smoke --from FOLDER`" in err


def test_a_hub_that_is_busy_pauses_the_call(hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from merging.base.errors import HubError

    def busy(*_: Any, **__: Any) -> None:
        raise HubError("busy.", "busy", True)

    monkeypatch.setattr("merging.sharing.published.experiment_steps.fetch", busy)
    code, _, err = call(capsys, "fetch", "smoke", "--yes")
    assert code == 75 and "busy. The same command goes on from there." in err


def test_without_a_terminal_nobody_is_asked(hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    code, _, err = call(capsys, "fetch", "smoke")
    assert code == 2 and "Confirm with --yes" in err and hub.fetched() == {}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["run", "smoek", "--yes"], "Did you mean 'smoke'?"),
        (["run", "smoke", "--rows", "tise"], "has no row 'tise'. Did you mean 'ties'?"),
        (["run", "smoke", "--experts", ""], "Experts are hub, published or a folder; the name of the folder is empty"),
        (["run", "smoke", "--to", "table.txt"], "ends in .md, .csv, .json; got table.txt"),
        (["table", "smoke", "--expect", "agrees"], "'agrees' is not 'reproduced'"),
    ],
)
def test_a_wrong_call_is_explained(hub: LoopbackHub, capsys: Any, words: list[str], problem: str) -> None:
    code, _, err = call(capsys, *words)
    assert code == 2 and problem in err, err


def measured(share: float) -> list[MeasuredRow]:
    def scores(percents: tuple[float, float]) -> dict[str, TaskScore]:
        return {one.key: TaskScore(one.key, x / 100, 10_000) for one, x in zip(SMOKE.tasks, percents, strict=True)}

    row = list_variants(SMOKE, make_choice(SMOKE))[0]
    rows = [(PRETRAINED, (48.2, 46.0)), (INDIVIDUAL, (99.6 * share, 99.0 * share)), (row, (90.0, 90.0))]
    return [MeasuredRow(key, scores(percents), run="abc") for key, percents in rows]


def keep(place: ExperimentFolders, rows: list[MeasuredRow], images: str = "all") -> None:
    kept = MeasuredTable("one CPU", "", make_choice(SMOKE, images=images), {}, MeasuredFiles((), ()))
    for row in rows:
        kept = kept.with_row(row)
    write_measured(place.folder, kept)


@pytest.mark.parametrize(("share", "code"), [(1.0, 0), (0.9, 0)])
def test_the_table_is_printed_from_what_was_kept(
    hub: LoopbackHub, capsys: Any, tmp_path: Path, share: float, code: int
) -> None:
    place, choice = find_folders("smoke"), make_choice(SMOKE, images="all")
    store_choice(place, choice)
    keep(place, measured(share))
    assert read_measured(place.folder, SMOKE, choice).sort_rows(SMOKE, choice) == measured(share)
    ended, out, _ = call(capsys, "table", "smoke", "--to", str(tmp_path / "t.md"), "--expect", "reproduced")
    assert ended == code and ("Other experts" in out) == (share < 1) and "on all images, seed 0, one CPU" in out
    assert (tmp_path / "t.md").read_text("utf-8").startswith("# smoke")
    assert hub.requests == []


def test_a_stopped_run_leaves_the_table_before_it_as_what_it_was(hub: LoopbackHub, capsys: Any, tmp_path: Path) -> None:
    place = find_folders("smoke")
    place.folder.mkdir(parents=True)
    keep(place, measured(1.0), "100")
    store_choice(place, make_choice(SMOKE, images="all"))  # a run on all images that ended before its first row
    code, out, _ = call(capsys, "table", "smoke")
    assert code == 0 and "on 100 of each, seed 0" in out and "reproduced" not in out.replace("judged reproduced", "")


def test_an_expectation_that_is_not_met_is_the_exit_code(hub: LoopbackHub, capsys: Any) -> None:
    place = find_folders("smoke")
    store_choice(place, make_choice(SMOKE, images="all"))
    first, *rest = measured(1.0)
    wrong = MeasuredRow(PRETRAINED, {task: TaskScore(task, 0.9, 10_000) for task in first.scores})
    keep(place, [wrong, *rest])
    assert call(capsys, "table", "smoke")[0] == 0
    assert call(capsys, "table", "smoke", "--expect", "reproduced")[0] == 1


def test_a_table_of_nothing_says_what_computes_it(hub: LoopbackHub, capsys: Any) -> None:
    code, _, err = call(capsys, "table", "smoke")
    assert code == 1 and "smoke has not run in this store. `published run smoke` computes it." in err

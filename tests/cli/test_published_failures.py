"""What the command ``published`` says where the Hub does not give what is needed, and what of it is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import ACCEPTED, LoopbackHub

from merging.cli.main import main
from merging.models.hub import download_threads
from merging.sharing.published import experiment_steps
from merging.sharing.published.catalogue_parts import read_shared_parts
from merging.sharing.published.choice import make_choice
from merging.sharing.published.experiment_catalogue import read_experiment
from merging.sharing.published.experiment_run import find_folders

EIGHT, SMOKE = read_experiment("clip-b32-8"), read_experiment("smoke")
SMALL = {"config.json": b"{}", "pytorch_model.bin": b"p" * 900, "model.safetensors": b"m" * 700}
IMAGENET = "clip-benchmark/wds_imagenet1k"
EUROSAT, TEST = "tanganke/eurosat", "data/test-00000-of-00001.parquet"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    """Files of the right names: fetching does not look into them."""
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(download_threads, "FIRST_DELAY", 0.01)
    models = EIGHT.models["hub"]
    with LoopbackHub() as server:
        for use in (models.pretrained, *models.experts.values()):
            own = use.repository.encode()
            server.add("model", use.repository, {name: content + own for name, content in SMALL.items()})
        for one in (*EIGHT.tasks, *EIGHT.outside):
            listed = read_shared_parts().repositories[one.repository].parts.values()
            names = [file.name.replace("*", "00000") for part in listed for file in part.files]
            files = {name: f"{one.repository} {name}".encode() * 9 for name in names}
            server.add("dataset", one.repository, files, gated=one.repository == IMAGENET)
        server.connect(monkeypatch, tmp_path / "home")
        yield server


def call(capsys: Any, *words: str) -> tuple[int, str]:
    """Exit code, and the sentence of a failure."""
    code = main(["published", *words, "--yes", "--json"])
    out = capsys.readouterr().out
    return code, str(json.loads(out[out.rindex("\n{") + 1 :] if "\n{" in out else out).get("error", ""))


def end(hub: LoopbackHub) -> None:
    """Let the Hub be gone, for connections that are still open, too."""
    from huggingface_hub.utils import close_session

    hub.stop()
    close_session()


@pytest.mark.parametrize("fault", [{"status": 429, "headers": {"Retry-After": "0"}}, {"status": 503}], ids=str)
def test_a_hub_that_is_busy_for_long_pauses_and_the_same_command_goes_on(
    hub: LoopbackHub, capsys: Any, fault: dict[str, Any]
) -> None:
    hub.fail("datasets/tanganke/eurosat/resolve", method="HEAD", times=6, **fault)
    code, said = call(capsys, "fetch", "smoke")
    assert code == 75 and f"HTTP {fault['status']}" in said and "The same command goes on from there." in said
    fetched = hub.fetched()
    assert call(capsys, "fetch", "smoke") == (0, "")
    assert all(hub.fetched()[name] == count for name, count in fetched.items())


def test_a_hub_that_is_busy_when_it_is_asked_for_commits_pauses(hub: LoopbackHub, capsys: Any) -> None:
    hub.fail("/api/datasets/tanganke/eurosat", times=6, status=503)
    assert call(capsys, "run", "smoke")[0] == 75


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"status": 401, "headers": {"X-Error-Code": "RepoNotFound"}}, "There is no public data set tanganke/eurosat"),
        ({"status": 401, "headers": {"X-Error-Code": "GatedRepo"}}, "tanganke/eurosat asks for accepted terms"),
        ({"status": 404, "headers": {"X-Error-Code": "EntryNotFound"}}, "has no file data/test-00000-of-00001.parquet"),
    ],
    ids=["gone", "gated", "file gone"],
)
def test_what_is_gone_or_closed_is_named_with_what_else_can_run(
    hub: LoopbackHub, capsys: Any, fault: dict[str, Any], says: str
) -> None:
    hub.fail("datasets/tanganke/eurosat/resolve", method="HEAD", times=9, **fault)
    code, said = call(capsys, "run", "smoke")
    assert code == 1 and says in said and said.endswith("With the files that are available, use `--tasks mnist`."), said


def test_another_file_than_the_hub_states_is_not_kept(hub: LoopbackHub, capsys: Any, tmp_path: Path) -> None:
    hub.fail(port="storage", flip=3, times=9)
    code, said = call(capsys, "fetch", "smoke")
    assert code == 1 and "its sha256 is" in said and "expected is" in said
    assert not list((tmp_path / "home" / "hub").glob(f"*/blobs/{re.search('expected is ([0-9a-f]+)', said)[1]}*"))


def test_a_file_that_breaks_off_is_fetched_on_from_there(hub: LoopbackHub, capsys: Any) -> None:
    hub.fail(port="storage", cut=100)
    assert call(capsys, "fetch", "smoke") == (0, "")
    assert [seen.range for seen in hub.requests if seen.range and seen.port == "storage"] == ["bytes=100-"]


def test_gated_sets_are_fetched_first_and_the_way_without_them_is_named(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("fetch", "clip-b32-8", "--imagenet")
    code, said = call(capsys, *words)
    assert code == 1 and f"{IMAGENET} asks for accepted terms: accept them at its page" in said
    assert said.endswith("With the files that are available, use `--no-imagenet`.") and hub.fetched() == {}
    monkeypatch.setenv("HF_TOKEN", ACCEPTED)
    assert call(capsys, *words) == (0, "")
    assert {seen.token for seen in hub.requests if seen.port == "storage"} == {""}


def test_partly_here_names_what_is_missing_and_what_can_run(hub: LoopbackHub, capsys: Any) -> None:
    assert call(capsys, "fetch", "clip-b32-8", "--tasks", "mnist,eurosat")[0] == 0
    end(hub)
    code, said = call(capsys, "run", "clip-b32-8")
    assert code == 1 and f"from {hub.host} (" in said and "this machine has no connection (ConnectError)" in said
    assert (
        "`published fetch clip-b32-8 --into FOLDER`; then on this machine `published run clip-b32-8 --from FOLDER`"
        in said
    )
    assert said.endswith("With the files that are available, use `--tasks eurosat,mnist`."), said


def test_rows_without_exemplars_can_run_if_only_train_splits_are_missing(hub: LoopbackHub, capsys: Any) -> None:
    assert call(capsys, "fetch", "clip-b32-8")[0] == 0
    assert not any("train" in seen.path for seen in hub.requests)
    end(hub)
    code, said = call(capsys, "run", "clip-b32-8", "--rows", "averaging,lot")
    assert code == 1 and said.endswith("With the files that are available, use `--rows averaging`."), said


@pytest.mark.parametrize("setting", ["off", "cached"])
def test_a_setting_is_named_and_no_network_error(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("MERGESCOPE_HUB", setting)
    code, said = call(capsys, "run", "smoke")
    assert code == 1 and f"MERGESCOPE_HUB={setting}" in said and "no connection" not in said
    assert "smoke needs about 1.32 GB" in said and "--into FOLDER" in said and hub.requests == []


def test_too_little_room_is_said_before_anything_comes(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment_steps, "free_bytes", lambda place: 1000)
    code, said = call(capsys, "fetch", "smoke")
    assert code == 1 and "1 kB are free in" in said and "HF_HOME" in said and hub.fetched() == {}


def test_a_full_disk_on_the_way_pauses(hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merging.models.hub.fetch.free_bytes", lambda place: 800)
    code, said = call(capsys, "fetch", "smoke")
    assert code == 75 and "HF_HOME" in said


def test_another_host_is_named_and_cannot_change_a_pinned_file(hub: LoopbackHub, capsys: Any) -> None:
    assert main(["published", "plan", "smoke"]) == 0
    assert f"To fetch from {hub.host}" in capsys.readouterr().out
    experiment_steps.pin_repositories(SMOKE, make_choice(SMOKE), find_folders("smoke"))
    hub.swap("dataset", EUROSAT, TEST, b"another" * 30)
    code, said = call(capsys, "fetch", "smoke")
    assert code == 1 and "is not the file expected and was not kept" in said and hub.host in said


def test_a_limit_of_the_rate_is_heeded(hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    fetch = experiment_steps.fetch

    def noted(*args: Any, bytes_per_second: float | None, **options: Any) -> Any:
        limits.append(bytes_per_second)
        return fetch(*args, bytes_per_second=bytes_per_second, **options)

    monkeypatch.setattr(experiment_steps, "fetch", noted)
    assert call(capsys, "fetch", "smoke", "--limit-rate", "2.5") == (0, "") and set(limits) == {2.5e6}


PRETRAINED = "openai/clip-vit-base-patch32"


def without_weights(hub: LoopbackHub, weights: dict[str, bytes], branch: str = "main") -> str:
    """Put the pretrained model on a branch with these weights alone; gives the commit."""
    return hub.add(
        "model", PRETRAINED, {"config.json": b"{}", "tf_model.h5": b"not read here"} | weights, branch=branch
    )


def test_weights_in_the_other_format_are_taken(hub: LoopbackHub, capsys: Any) -> None:
    without_weights(hub, {"model.safetensors": b"safetensors alone"})
    mnist = EIGHT.models["hub"].experts["mnist"].repository
    hub.add("model", mnist, {"config.json": b"{}", "pytorch_model.bin": b"a pickle alone"})
    assert call(capsys, "fetch", "smoke") == (0, "")
    fetched = {seen.path.partition("?")[0] for seen in hub.requests if "/resolve/" in seen.path}
    names = {
        repository: {p.rpartition("/")[2] for p in fetched if repository in p} for repository in (PRETRAINED, mnist)
    }
    assert names == {
        PRETRAINED: {"config.json", "model.safetensors"}, mnist: {"config.json", "pytorch_model.bin"},
    }  # fmt: skip


def test_without_weights_a_revision_is_offered_and_taken(hub: LoopbackHub, capsys: Any) -> None:
    without_weights(hub, {})
    for _ in range(2):  # a commit that does not have them is not pinned, so that nothing else stops either
        code, said = call(capsys, "run", "smoke")
        assert code == 1 and f"{PRETRAINED} has no file pytorch_model.bin at " in said
        assert f"`--revision {PRETRAINED}=REVISION` uses another branch, tag or commit." in said
        assert main(["published", "--json"]) == 0 and capsys.readouterr().out
    commit = without_weights(hub, {"model.safetensors": b"weights"}, branch="with-weights")
    assert call(capsys, "fetch", "smoke", "--revision", f"{PRETRAINED}=with-weights") == (0, "")
    assert find_folders("smoke").read_lock().repositories[PRETRAINED].revision == commit
    asked = len(hub.requests)
    assert call(capsys, "fetch", "smoke") == (0, "") and len(hub.requests) == asked
    newer = without_weights(hub, {"model.safetensors": b"newer"}, branch="newer")
    assert call(capsys, "fetch", "smoke", "--revision", f"{PRETRAINED}={newer}") == (0, "")
    assert find_folders("smoke").read_lock().latest == (PRETRAINED,), "nothing is then judged reproduced"


@pytest.mark.parametrize(
    ("revision", "code", "says"),
    [
        (PRETRAINED, 2, f"--revision is REPOSITORY=REVISION; got '{PRETRAINED}'."),
        (f"{PRETRAINED[:-1]}=main", 1, f"smoke does not use {PRETRAINED[:-1]}. Did you mean '{PRETRAINED}'?"),
        (f"{PRETRAINED}=none", 1, f"{PRETRAINED} on {{host}} has no revision none"),
    ],
)
def test_a_revision_that_cannot_be_is_said(hub: LoopbackHub, capsys: Any, revision: str, code: int, says: str) -> None:
    found, said = call(capsys, "fetch", "smoke", "--revision", revision)
    assert found == code and says.format(host=hub.host) in said, said
    assert hub.fetched() == {}

"""Fetching into the Hub's own cache: once, verified, found again without a network, also by other programs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from huggingface_hub import try_to_load_from_cache
from loopback_hub import ACCEPTED, HUB, OWN_STORAGE, STORAGE, LoopbackHub

from merging.base.errors import HubError
from merging.base.progress import Progress
from merging.base.settings import HUB_VARIABLE
from merging.models.hub.blob_cache import count_cached_bytes, find_snapshot, read_ref, repository_folder
from merging.models.hub.fetch import fetch
from merging.models.hub.repository import Repository, RepositoryFile
from merging.models.hub.repository_facts import fetch_facts
from merging.tasks.context import Context

MODEL = Repository("model", "tiny/clip")
FILES = {"config.json": b"{}", "model.safetensors": b"weights", "data/test-0.parquet": b"rows"}


def pinned(hub: LoopbackHub, files: dict[str, bytes] | None = None) -> tuple[Repository, tuple[RepositoryFile, ...]]:
    """A repository at a commit, and its files as a catalogue lists them: large ones with their digests."""
    contents = files or FILES
    commit = hub.add("model", "tiny/clip", contents)
    sent = hub.repositories["model", "tiny/clip"].commits[commit]
    listed = (
        RepositoryFile(name, len(file.content), file.sha256 if file.large else None) for name, file in sent.items()
    )
    return Repository("model", "tiny/clip", commit), tuple(listed)


def cached(repository: Repository, name: str, into: Path | None = None) -> Path | None:
    """A file as every program finds it in the cache."""
    path = try_to_load_from_cache(repository.name, name, into, repository.revision, repository.kind)
    return Path(path) if isinstance(path, str) else None


def test_files_lie_where_other_programs_look(loopback: LoopbackHub) -> None:
    repository, files = pinned(loopback)
    folder = fetch(repository, files)
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    assert folder.parts[-3:] == ("models--tiny--clip", "snapshots", repository.revision)
    for name in FILES:
        assert cached(MODEL, name) == cached(repository, name) == folder / name
    assert (folder / "model.safetensors").readlink().name == hashlib.sha256(b"weights").hexdigest()
    assert not list(repository_folder(MODEL).rglob("*.part"))
    assert loopback.count("/api/agent-harnesses") == 0


def test_a_second_call_asks_for_nothing(loopback: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, files = pinned(loopback)
    folder = fetch(repository, files)
    count = len(loopback.requests)
    assert fetch(repository, files) == folder and len(loopback.requests) == count
    assert all(count == 1 for count in loopback.fetched().values())
    loopback.stop()
    assert fetch(repository, files) == fetch(MODEL, files) == folder
    monkeypatch.setenv(HUB_VARIABLE, "cached")
    assert fetch(repository, files) == folder and cached(MODEL, "config.json") == folder / "config.json"
    monkeypatch.setenv(HUB_VARIABLE, "off")
    assert find_snapshot(MODEL) is None
    with pytest.raises(HubError, match="MERGESCOPE_HUB=off"):
        fetch(repository, files)


def test_a_hub_that_keeps_large_files_at_its_own_host_is_one(loopback: LoopbackHub, monkeypatch) -> None:
    """A mirror redirects to itself: the first answer states the commit and the digest, the second one does not."""
    monkeypatch.setenv("HF_TOKEN", ACCEPTED)
    loopback.own_storage = True
    repository, files = pinned(loopback)
    folder = fetch(repository, files)
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    assert {seen.port for seen in loopback.requests} == {HUB}
    assert {seen.token for seen in loopback.requests if OWN_STORAGE in seen.path} == {ACCEPTED}


def test_a_mirror_whose_storage_states_no_digest_is_a_hub_if_the_digest_is_known(loopback: LoopbackHub) -> None:
    loopback.own_storage = True
    repository, (weights,) = pinned(loopback, {"model.safetensors": b"weights"})
    loopback.fail(OWN_STORAGE, method="HEAD", status=200, headers={"ETag": '"5f-1a2b"'}, times=2)
    with pytest.raises(HubError, match="does not answer as the Hub does"):
        fetch(repository, [RepositoryFile(weights.name)])
    assert (fetch(repository, [weights]) / weights.name).read_bytes() == b"weights"


@pytest.mark.parametrize("name", ["empty.json", "empty.bin"])
def test_an_empty_file_is_a_file(loopback: LoopbackHub, name: str) -> None:
    repository, files = pinned(loopback, {name: b""})
    assert (fetch(repository, files) / name).read_bytes() == b""


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_no_token_goes_where_the_own_host_redirects_to(loopback: LoopbackHub, monkeypatch, method: str) -> None:
    monkeypatch.setenv("HF_TOKEN", ACCEPTED)
    loopback.own_storage = method == "GET"
    repository, (weights,) = pinned(loopback, {"model.safetensors": b"weights"})
    if method == "GET":
        loopback.fail(OWN_STORAGE, status=302, headers={"Location": f"{loopback.url(STORAGE)}/{weights.sha256}"})
    assert (fetch(repository, [weights]) / weights.name).read_bytes() == b"weights"
    tokens = {port: {seen.token for seen in loopback.requests if seen.port == port} for port in (HUB, STORAGE)}
    assert tokens == {HUB: {ACCEPTED}, STORAGE: {""}}


def test_another_host_is_not_asked_what_the_hub_does_not_state(loopback: LoopbackHub) -> None:
    repository, (weights,) = pinned(loopback, {"model.safetensors": b"weights"})
    place = {"Location": f"{loopback.url(STORAGE)}/{weights.sha256}"}
    loopback.fail(weights.name, method="HEAD", status=302, headers=place)
    with pytest.raises(HubError, match="does not answer as the Hub does"):
        fetch(repository, [weights])
    assert {seen.port for seen in loopback.requests} == {HUB}


def test_a_repository_under_its_old_name_is_found_at_its_new_one(loopback: LoopbackHub, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", ACCEPTED)
    repository, files = pinned(loopback)
    loopback.renamed["old/clip"] = "tiny/clip"
    old = Repository("model", "old/clip", repository.revision)
    assert fetch_facts(old).revision == repository.revision
    folder = fetch(old, files)
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert {seen.token for seen in loopback.requests if seen.port == HUB} == {ACCEPTED}


def test_redirects_without_an_end_are_refused(loopback: LoopbackHub) -> None:
    repository, files = pinned(loopback)
    loopback.renamed |= {"tiny/clip": "tiny/clap", "tiny/clap": "tiny/clip"}
    with pytest.raises(HubError, match="redirects again and again: check HF_ENDPOINT"):
        fetch(repository, files)


def test_the_branch_is_noted_unless_it_has_moved_on(loopback: LoopbackHub) -> None:
    repository, files = pinned(loopback)
    fetch(repository, files)
    assert read_ref(repository_folder(MODEL), "main") == repository.revision
    old = loopback.add("dataset", "tiny/data", {"a.parquet": b"old"})
    loopback.add("dataset", "tiny/data", {"a.parquet": b"new"})
    data = Repository("dataset", "tiny/data", old)
    assert (fetch(data, [RepositoryFile("a.parquet")]) / "a.parquet").read_bytes() == b"old"
    assert not read_ref(repository_folder(data), "main") and cached(data, "a.parquet")
    newest = Repository("dataset", "tiny/data")
    assert (fetch(newest, [RepositoryFile("a.parquet")]) / "a.parquet").read_bytes() == b"new"
    assert cached(data, "a.parquet") != cached(newest, "a.parquet"), "each at its own commit"


def test_a_pinned_file_may_lie_at_another_commit_if_it_is_the_same(loopback: LoopbackHub) -> None:
    repository, files = pinned(loopback)
    loopback.add("model", "tiny/clip", FILES | {"README.md": b"moved on"})
    stated = fetch_facts(MODEL)
    fetch(MODEL, stated.files, facts=stated)
    weights = next(file for file in files if file.name == "model.safetensors")
    assert cached(repository, "model.safetensors") is None
    sent = dict(loopback.fetched())
    fetch(repository, files)
    assert loopback.fetched()[str(weights.sha256)] == sent[str(weights.sha256)] == 1, "not fetched again"


def test_other_folders_get_the_same_layout(loopback: LoopbackHub, tmp_path: Path, monkeypatch) -> None:
    repository, files = pinned(loopback)
    other = tmp_path / "carried"
    folder = fetch(repository, files, separate_cache=other)
    assert folder == other / "models--tiny--clip" / "snapshots" / str(repository.revision)
    assert cached(repository, "config.json") is None and cached(repository, "config.json", other)
    monkeypatch.setenv(HUB_VARIABLE, "off")
    assert fetch(repository, files, separate_cache=other) == folder, "a folder of one's own is not the Hub's cache"
    assert cached(repository, "config.json", other) == folder / "config.json"


def test_progress_counts_the_bytes_that_are_missing(loopback: LoopbackHub) -> None:
    repository, files = pinned(loopback, {"a.bin": b"a" * 300_000, "b.bin": b"b" * 500_000, "c.json": b"c" * 7})
    fetch(repository, files[:1])
    assert count_cached_bytes(repository, files) == 300_000
    seen: list[Progress] = []
    fetch(repository, files, context=Context(progress=seen.append))
    assert (seen[0].done, seen[-1].done, seen[-1].total) == (0, 500_007, 500_007)
    assert seen[-1].phase == f"Fetching from {loopback.host}"
    assert count_cached_bytes(repository, files) == 800_007


def test_what_was_not_fetched_whole_is_not_shown(loopback: LoopbackHub) -> None:
    repository, files = pinned(loopback)
    loopback.fail("config.json", status=400)
    with pytest.raises(HubError, match=r"did not send config.json of tiny/clip \(HTTP 400\)"):
        fetch(repository, files)
    assert cached(repository, "model.safetensors") is None, "without its configuration it would be read wrongly"
    sent = loopback.fetched()
    fetch(repository, files)
    again = {name: count for name, count in loopback.fetched().items() if count > sent.get(name, 0)}
    assert "config.json" in again and set(again) <= {"config.json", *(str(file.sha256) for file in files)}


def test_a_blob_of_another_size_is_fetched_again(loopback: LoopbackHub) -> None:
    repository, files = pinned(loopback)
    folder = fetch(repository, files)
    (folder / "model.safetensors").write_bytes(b"half")  # by way of the link
    assert (fetch(repository, files) / "model.safetensors").read_bytes() == b"weights"


def test_without_links_files_are_moved(loopback: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*words: object) -> None:
        raise OSError(38, "Function not implemented")

    repository, files = pinned(loopback)
    monkeypatch.setattr(Path, "symlink_to", refused)
    folder = fetch(repository, files)
    assert (folder / "model.safetensors").read_bytes() == b"weights" and not (folder / "config.json").is_symlink()
    count = len(loopback.requests)
    assert fetch(repository, files) == folder and len(loopback.requests) == count


@pytest.mark.parametrize("name", ["../config.json", "/etc/passwd", "a/../../b", "a\\..\\b", ""])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(HubError, match="is not a name of a file"):
        RepositoryFile(name)


@pytest.mark.parametrize(
    "name,revision", [("a/b/c", None), ("../b", None), ("a b", None), ("a/b", "../c"), ("a/b", "/c"), ("", None)]
)
def test_odd_repositories_are_refused(name: str, revision: str | None) -> None:
    with pytest.raises(HubError, match="is not a repository of the Hub"):
        Repository("model", name, revision)


@pytest.mark.parametrize("keys", [{"git_id": "../../../victim.txt"}, {"sha256": "a" * 63}, {"git_id": "G" * 40}])
def test_keys_that_are_no_digests_are_refused(keys: dict[str, str]) -> None:
    with pytest.raises(HubError, match=r"config.json .* is not a digest"):
        RepositoryFile("config.json", 3, **keys)

"""What the Hub says of a repository: commit, license, terms and files, and nothing else is asked of it."""

from __future__ import annotations

import os
import threading
import time
from email.utils import formatdate
from types import SimpleNamespace

import pytest
from huggingface_hub import constants
from loopback_hub import LoopbackHub

from merging.base.errors import Cancelled, HubError
from merging.models.hub import client, download_threads
from merging.models.hub import repository_facts as facts_module
from merging.models.hub.repository import Repository, RepositoryFile
from merging.models.hub.repository_facts import fetch_facts
from merging.tasks.context import Context

FILES = {"config.json": b"{}", "model.safetensors": b"weights"}


def test_sizes_and_digests_are_the_hub_s(loopback: LoopbackHub) -> None:
    commit = loopback.add("model", "tiny/clip", FILES)
    stated = fetch_facts(Repository("model", "tiny/clip"))
    assert (stated.revision, stated.license, stated.gated) == (commit, None, False)
    small, large = stated.files
    sent = loopback.repositories["model", "tiny/clip"].commits[commit]
    assert small == RepositoryFile("config.json", 2, None, sent["config.json"].git_id)
    assert large == RepositoryFile("model.safetensors", 7, sent["model.safetensors"].sha256, None)
    assert [seen.path for seen in loopback.requests] == ["/api/models/tiny/clip?blobs=true"], "no telemetry"


def test_the_library_counts_no_use_even_if_others_imported_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    monkeypatch.delenv("HF_HUB_DISABLE_UPDATE_CHECK", raising=False)
    client.load_library()
    assert constants.HF_HUB_DISABLE_TELEMETRY and os.environ["HF_HUB_DISABLE_UPDATE_CHECK"] == "1"


@pytest.mark.parametrize(
    "license,text", [("mit", "mit"), (["mit", "cc-by-4.0"], "mit, cc-by-4.0"), ("other", "other"), (None, None)]
)
def test_the_license_is_as_the_card_states_it(loopback: LoopbackHub, license, text) -> None:
    loopback.add("dataset", "tiny/data", FILES, license=license, gated=True)
    stated = fetch_facts(Repository("dataset", "tiny/data"))
    assert (stated.license, stated.gated) == (text, True)


def test_a_commit_a_branch_and_a_tag_are_revisions(loopback: LoopbackHub) -> None:
    first = loopback.add("dataset", "tiny/data", FILES)
    second = loopback.add("dataset", "tiny/data", FILES | {"README.md": b"new"})
    parquet = loopback.add("dataset", "tiny/data", {"default/test/0000.parquet": b"p"}, branch="refs/convert/parquet")
    given = [
        fetch_facts(Repository("dataset", "tiny/data", at)).revision for at in (None, first, "refs/convert/parquet")
    ]
    assert given == [second, first, parquet]


def test_a_busy_hub_is_asked_again_after_the_delay_that_it_states(
    loopback: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[float]()
    monkeypatch.setattr(
        download_threads.DownloadThreads, "wait", lambda self, seconds=0.0: waited.append(seconds) if seconds else None
    )
    loopback.add("model", "tiny/clip", FILES)
    date = formatdate(time.time() + 20, usegmt=True)  # which has no fractions of a second
    for status, headers in (
        (429, {"Retry-After": "7"}),
        (429, {"RateLimit": '"api";r=0;t=7'}),
        (503, {"Retry-After": date}),
    ):
        loopback.fail(status=status, headers=headers)
        fetch_facts(Repository("model", "tiny/clip"))
    assert waited[:2] == [7.0, 7.0] and 10 < waited[2] <= 20 and len(waited) == 3
    loopback.fail(status=503, times=3, headers={"RateLimit": '"api";r=9;t=99'})
    fetch_facts(Repository("model", "tiny/clip"))
    assert max(waited[3:]) < 1 and loopback.count("/api/models/") == 2 + 2 + 2 + 4


def test_after_five_tries_it_says_that_it_is_busy(loopback: LoopbackHub) -> None:
    loopback.add("model", "tiny/clip", FILES)
    loopback.fail(status=503, times=9)
    with pytest.raises(
        HubError, match=rf"{loopback.host} did not send tiny/clip \(HTTP 503\): try again later"
    ) as error:
        fetch_facts(Repository("model", "tiny/clip"))
    assert loopback.count("/api/models/") == 6 and (error.value.reason, error.value.later) == ("busy", True)


def test_waiting_for_an_answer_is_cancelled_at_once(loopback: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "TIMEOUT_SECONDS", 60.0)
    loopback.add("model", "tiny/clip", FILES)
    loopback.fail(stall=0)
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    start = time.monotonic()
    with pytest.raises(Cancelled):
        fetch_facts(Repository("model", "tiny/clip"), Context(cancel=stop))
    assert time.monotonic() - start < 10  # the server answers after a minute; alone it takes 1.5 s


@pytest.mark.parametrize("answer", [{"sha": "/home/u/.ssh"}, {"sha": "main"}, {"blob_id": "../../../victim.txt"}])
def test_answers_that_lead_out_of_the_cache_are_refused(loopback: LoopbackHub, monkeypatch, answer) -> None:
    entry = SimpleNamespace(rfilename="config.json", size=2, lfs=None, blob_id=answer.get("blob_id", "b" * 40))
    info = SimpleNamespace(sha=answer.get("sha", "a" * 40), siblings=[entry], card_data=None, gated=False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *words, **options: info)
    with pytest.raises(HubError, match=f"^{loopback.host} does not answer as the Hub does about tiny/clip"):
        fetch_facts(Repository("model", "tiny/clip"))


@pytest.mark.parametrize("pointer", [{}, {"sha256": ""}, {"sha256": "short"}])
def test_a_large_file_is_never_known_by_the_id_of_its_pointer(loopback: LoopbackHub, monkeypatch, pointer) -> None:
    loopback.add("model", "tiny/clip", FILES)
    lfs = SimpleNamespace(**pointer) if pointer else {}
    entry = SimpleNamespace(rfilename="model.safetensors", size=7, lfs=lfs, blob_id="b" * 40)
    info = SimpleNamespace(sha="a" * 40, siblings=[entry], card_data=None, gated=False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *words, **options: info)
    assert fetch_facts(Repository("model", "tiny/clip")).files == (RepositoryFile("model.safetensors", 7),)

"""What is said when the Hub does not give a file: one sentence that names the host and the way out."""

from __future__ import annotations

import errno
import logging
import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest
from faulty_disk import FULL, fail_writing
from loopback_hub import ACCEPTED, HUB, STORAGE, STRANGER, LoopbackHub

from merging.base.errors import HUB_REASONS, HubError
from merging.base.settings import HUB_VARIABLE
from merging.models.hub import client, hub_errors
from merging.models.hub import fetch as fetch_module
from merging.models.hub.blob_cache import repository_folder
from merging.models.hub.fetch import fetch
from merging.models.hub.repository import Repository, RepositoryFile
from merging.models.hub.repository_facts import fetch_facts

BYTES = b"weights" * 100_000
FILE = RepositoryFile("model.safetensors", len(BYTES))


def failure_of(repository: Repository, *files: RepositoryFile) -> tuple[str, str]:
    """The sentence and the reason of the error that fetching ends with."""
    with pytest.raises(HubError) as error:
        fetch(repository, files or [FILE])
    assert error.value.reason in HUB_REASONS
    return str(error.value), error.value.reason


@pytest.fixture
def gated(loopback: LoopbackHub) -> Repository:
    loopback.add("dataset", "tiny/gated", {FILE.name: BYTES}, gated=True)
    return Repository("dataset", "tiny/gated")


def test_gated_is_said_as_gated(loopback: LoopbackHub, gated: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    page = f"{loopback.url()}/datasets/tiny/gated"
    asks = "tiny/gated asks for accepted terms"
    assert failure_of(gated) == (f"{asks}: accept them at its page, {page}, then set HF_TOKEN.", "access")
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    sentence, _ = failure_of(gated)
    assert sentence.startswith(asks) and "has not accepted them" in sentence and page in sentence
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    refused = f"{loopback.host} does not accept the token in use: set HF_TOKEN to a valid one, or log in again."
    assert failure_of(gated) == (refused, "access")
    monkeypatch.setenv("HF_TOKEN", ACCEPTED)
    assert (fetch(gated, [FILE]) / FILE.name).read_bytes() == BYTES


def test_the_token_goes_to_the_hub_alone_and_is_never_written(loopback, gated, monkeypatch, caplog, capfd) -> None:
    monkeypatch.setenv("HF_TOKEN", ACCEPTED)
    loopback.fail(port=STORAGE, cut=1000)
    loopback.fail(status=503)
    with caplog.at_level(logging.DEBUG):
        folder = fetch(gated, [FILE])
    tokens = {port: {seen.token for seen in loopback.requests if seen.port == port} for port in (HUB, STORAGE)}
    assert tokens == {HUB: {ACCEPTED}, STORAGE: {""}}
    assert ACCEPTED not in caplog.text + "".join(capfd.readouterr())
    assert not [
        path
        for path in repository_folder(gated).rglob("*")
        if path.is_file() and ACCEPTED.encode() in path.read_bytes()
    ]
    assert folder.is_dir()


def test_a_token_of_the_login_file_is_used(loopback: LoopbackHub, gated: Repository, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text(ACCEPTED)
    assert (fetch(gated, [FILE]) / FILE.name).read_bytes() == BYTES


def test_what_is_not_there_is_named(loopback: LoopbackHub) -> None:
    none = f"There is no public model tiny/none on {loopback.host}: check its name, or set HF_TOKEN if it is private."
    assert failure_of(Repository("model", "tiny/none")) == (none, "missing")
    commit = loopback.add("model", "tiny/clip", {"config.json": b"{}"})
    sentence, reason = failure_of(Repository("model", "tiny/clip", commit))
    assert f"has no file model.safetensors at {commit[:12]}" in sentence and reason == "missing"
    with pytest.raises(HubError, match=f"tiny/clip on {loopback.host} has no revision v9"):
        fetch_facts(Repository("model", "tiny/clip", "v9"))


def test_without_a_connection_the_host_is_named(loopback: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    loopback.stop()
    sentence, reason = failure_of(Repository("model", "tiny/clip", "0" * 40))
    assert f"no connection to {loopback.host} (ConnectError)" in sentence and reason == "connection"
    assert "huggingface.co" not in sentence and sentence.count(". ") <= 1
    monkeypatch.delenv("HF_ENDPOINT")
    assert client.host() == "huggingface.co"


@pytest.mark.parametrize("setting", ["cached", "off"])
def test_a_setting_is_named_and_nothing_asked(loopback: LoopbackHub, monkeypatch, setting: str) -> None:
    monkeypatch.setenv(HUB_VARIABLE, setting)
    sentence, reason = failure_of(Repository("model", "tiny/clip"))
    assert sentence == (
        f"tiny/clip is on {loopback.host}, which is not contacted here (MERGESCOPE_HUB={setting}); download it and "
        "give its path."
    )
    with pytest.raises(HubError, match=f"MERGESCOPE_HUB={setting}"):
        fetch_facts(Repository("model", "tiny/clip"))
    assert reason == "setting" and not loopback.requests


def test_the_library_s_offline_mode_is_named(loopback: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    sentence, reason = failure_of(Repository("model", "tiny/clip"))
    assert "HF_HUB_OFFLINE forbids to ask" in sentence and reason == "setting" and not loopback.requests


def test_what_is_no_hub_is_said(loopback: LoopbackHub) -> None:
    loopback.fail(method="HEAD", status=200)
    loopback.fail(status=200)
    for repository in (Repository("model", "tiny/clip", "0" * 40), Repository("model", "tiny/clip")):
        sentence, _ = failure_of(repository)
        assert f"{loopback.host} does not answer as the Hub does" in sentence and "check HF_ENDPOINT" in sentence


def test_a_full_disk_is_said_before_and_during(loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Repository("model", "tiny/clip", loopback.add("model", "tiny/clip", {FILE.name: BYTES}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_module, "free_bytes", lambda folder: 1000)
        sentence, reason = failure_of(model)
    cache = repository_folder(model).parent
    assert f"tiny/clip takes 700 kB, and 1 kB are free in {cache}" in sentence and "HF_HOME" in sentence
    assert reason == "disk" and not loopback.requests
    loopback.fail(port=STORAGE, cut=300_000)
    loopback.fail(port=STORAGE, status=400)
    failure_of(model)
    with fail_writing(repository_folder(model) / "blobs", FULL, 2):
        sentence, reason = failure_of(model)
    assert (
        f"The disk of {repository_folder(model)} is full: free some space, or set HF_HOME" in sentence
        and reason == "disk"
    )
    assert "300 kB of 700 kB are kept, and the next download goes on from there" in sentence
    assert (fetch(model, [FILE]) / FILE.name).read_bytes() == BYTES


def test_a_cache_that_cannot_be_written_to_is_said(loopback: LoopbackHub, tmp_path: Path) -> None:
    model = Repository("model", "tiny/clip", loopback.add("model", "tiny/clip", {FILE.name: BYTES}))
    (tmp_path / "home").write_text("a file in the way")
    sentence, reason = failure_of(model)
    assert "cannot be written to" in sentence and "set HF_HOME" in sentence and reason == "disk"


class ConnectError(Exception):
    """As the library's; such connections cannot be had on one machine."""


class ProxyError(Exception):
    """As the library's."""


def test_certificates_and_proxies_are_named_with_their_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Repository("model", "tiny/clip")
    refused = ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet valid")
    sentence = str(hub_errors.explain_error(refused, model))
    assert "certificate is not yet valid" in sentence and "clock" in sentence and "SSL_CERT_FILE" in sentence
    assert "CERTIFICATE_VERIFY_FAILED" in str(ssl.SSLError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate")), "as ssl"
    for name in hub_errors.PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy:1")
    sentence = str(hub_errors.explain_error(ProxyError("407 Proxy Authentication Required"), model))
    assert sentence == (
        "The proxy on the way to huggingface.co failed (407 Proxy Authentication Required): HTTPS_PROXY sets it."
    )


@pytest.mark.parametrize("status,later", [(500, True), (429, True), (418, False)])
def test_other_answers_are_named_by_their_status(status: int, later: bool) -> None:
    error = Exception("Client error for url 'https://storage/?signature=secret'")
    error.response = SimpleNamespace(status_code=status)  # type: ignore[attr-defined]
    explained = hub_errors.explain_error(error, Repository("model", "tiny/clip"), "config.json")
    assert isinstance(explained, HubError) and explained.later is later
    assert f"HTTP {status}" in str(explained) and "secret" not in str(explained)


def test_an_error_of_the_disk_names_its_place() -> None:
    error = OSError(errno.EROFS, "Read-only file system", "/cache/x")
    sentence = str(hub_errors.explain_error(error, Repository("model", "tiny/clip")))
    assert sentence.startswith("/cache/x cannot be written to (Read-only file system): set HF_HOME")


def test_a_password_in_the_address_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://user:p@ss@mirror.example:8443/hub/")
    assert client.host() == "mirror.example:8443"
    assert client.page_url(Repository("dataset", "tiny/data")) == "https://mirror.example:8443/hub/datasets/tiny/data"
    monkeypatch.setenv("HF_ENDPOINT", "user:secret@mirror.example")
    assert client.host() == "mirror.example" and "secret" not in client.page_url(Repository("model", "tiny/clip"))

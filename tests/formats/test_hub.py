"""Models by their name on a hub: chosen files only, from the cache or the network, plain words without."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import tiny
from loopback_hub import STORAGE, LoopbackHub
from safetensors.torch import save

from merging.base import settings
from merging.base.errors import Cancelled, CheckpointError
from merging.base.open_clip_import import prepare_torchvision
from merging.base.progress import Progress, watch_progress
from merging.cli.model_options import find_model
from merging.models.architecture import Architecture
from merging.models.formats import hub_models
from merging.models.formats.model_sources import ModelRef, open_checkpoint
from merging.models.hub import fetch as fetch_module
from merging.models.hub.blob_cache import cache_folder
from merging.tasks.context import Context

CONFIG = {"model_cfg": {"embed_dim": tiny.EMBED, "quick_gelu": True, "vision_cfg": tiny.ARCHITECTURE["vision_cfg"]}}
FILES = {
    "open_clip_model.safetensors": save(tiny.pretrained()),
    "model.safetensors": b"of a kind",
    "open_clip_config.json": json.dumps(CONFIG).encode(),
    "modeling.py": b"raise SystemExit",
}
INDEX, SHARD = "model.safetensors.index.json", "model-00001-of-00001.safetensors"


@pytest.fixture
def there(loopback: LoopbackHub) -> LoopbackHub:
    """A Hub with one model."""
    loopback.add("model", "tiny/clip", FILES)
    return loopback


def test_a_model_is_fetched_once_and_opened(there: LoopbackHub) -> None:
    seen: list[Progress] = []
    path = hub_models.fetch("hf-hub:tiny/clip", context=Context(progress=seen.append))
    assert path.name == "open_clip_model.safetensors" and seen[-1].phase == f"Fetching from {there.host}"
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "open_clip_config.json",
        "open_clip_model.safetensors",
    ]
    opened = open_checkpoint("hf-hub:tiny/clip")
    assert Architecture.from_checkpoint(opened).heads == 2 and opened.label == "hf-hub:tiny/clip"
    assert there.count("/api/") == 1, "the second time it comes from the cache"
    there.add("model", "tiny/clip", FILES, branch="other")
    open_checkpoint("hf-hub:tiny/clip@other")
    assert there.count("/api/") == 2, "another revision is another model"


@pytest.mark.parametrize("setting", ["on", "cached"])
def test_a_fetched_model_is_found_without_a_network(there: LoopbackHub, monkeypatch, setting: str) -> None:
    path = hub_models.fetch("hf-hub:tiny/clip")
    commit = path.parent.name
    there.stop()
    monkeypatch.setenv(settings.HUB_VARIABLE, setting)
    assert hub_models.fetch("hf-hub:tiny/clip") == hub_models.fetch(f"hf-hub:tiny/clip@{commit}") == path
    assert Architecture.from_checkpoint(open_checkpoint("hf-hub:tiny/clip")).width == tiny.WIDTH


def test_pretrained_tags_of_open_clip_are_found(there: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("open_clip")
    with pytest.raises(CheckpointError, match="There is no public model timm/"):
        open_checkpoint("ViT-B-32/openai")
    repository = there.requests[-1].path.removeprefix("/api/models/").split("?")[0]
    there.add("model", repository, FILES)
    assert Architecture.from_checkpoint(open_checkpoint("ViT-B-32/openai")).width == tiny.WIDTH
    with pytest.raises(CheckpointError, match=r"no file ViT-B-32/opnai, .* Did you mean 'openai'"):
        open_checkpoint("ViT-B-32/opnai")
    with pytest.raises(CheckpointError, match="has no such pretrained model"):
        open_checkpoint("ViT-Z-9/openai")
    monkeypatch.setitem(sys.modules, "open_clip.pretrained", None)
    with pytest.raises(CheckpointError, match="pip install open_clip_torch"):
        open_checkpoint("ViT-B-32/openai")


def test_a_file_of_that_name_comes_first(there: LoopbackHub, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ViT-B-32").mkdir()
    tiny.write(tmp_path / "ViT-B-32" / "mine", tiny.pretrained())
    assert not ModelRef("ViT-B-32/mine").is_on_hub and ModelRef("ViT-B-32/other").is_on_hub
    open_checkpoint("ViT-B-32/mine")
    assert not there.requests
    problems: list[str] = []
    find_model("hf-hub:tiny/clip", "the pretrained model", problems)
    assert not problems


def test_shards_and_adapters_are_taken_whole() -> None:
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert hub_models.needed_files([*shards, INDEX, "config.json", "evil.py"]) == [INDEX, *shards, "config.json"]
    adapter = ["adapter_config.json", "adapter_model.bin", "adapter_model.safetensors", "model.safetensors"]
    assert hub_models.needed_files(adapter) == ["adapter_model.safetensors", "adapter_config.json"]
    assert hub_models.needed_files(["pytorch_model.bin", "model.safetensors"]) == ["model.safetensors"]
    assert hub_models.needed_files(["flax_model.msgpack", "config.json"]) == []


def test_without_a_network_there_is_a_plain_sentence(there: LoopbackHub) -> None:
    there.stop()
    with pytest.raises(CheckpointError, match=rf"no connection to {there.host} .* give its path") as caught:
        open_checkpoint("hf-hub:tiny/clip")
    assert "Errno" not in str(caught.value) and "huggingface.co" not in str(caught.value)


def test_what_is_not_there_is_said(there: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match=f"no public model tiny/other on {there.host}"):
        hub_models.fetch("hf-hub:tiny/other")
    there.add("model", "tiny/code", {"modeling.py": b""})
    with pytest.raises(CheckpointError, match=f"tiny/code on {there.host} has no weights that can be read"):
        hub_models.fetch("hf-hub:tiny/code")
    there.add("model", "tiny/gated", FILES, gated=True)
    with pytest.raises(CheckpointError, match=r"asks for accepted terms: accept them at its page, .* set HF_TOKEN"):
        hub_models.fetch("hf-hub:tiny/gated")
    for odd in ("hf-hub:clip", "hf-hub:../../etc/passwd", "hf-hub:a/b@../c", "hf-hub:a/b c", "hf-hub:https://x/y"):
        with pytest.raises(CheckpointError, match="write hf-hub:organization/name"):
            hub_models.fetch(odd)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match="pip install huggingface_hub"):
        hub_models.fetch("hf-hub:tiny/clip")


def test_it_can_be_switched_off_and_held_to_the_cache(there: LoopbackHub, monkeypatch) -> None:
    monkeypatch.setenv(settings.HUB_VARIABLE, "cached")
    with pytest.raises(CheckpointError, match="MERGESCOPE_HUB=cached"):
        open_checkpoint("hf-hub:tiny/clip")
    assert not there.requests
    monkeypatch.delenv(settings.HUB_VARIABLE)
    open_checkpoint("hf-hub:tiny/clip")
    monkeypatch.setenv(settings.HUB_VARIABLE, "cached")
    open_checkpoint("hf-hub:tiny/clip")
    monkeypatch.setenv(settings.HUB_VARIABLE, "off")
    with pytest.raises(CheckpointError, match="MERGESCOPE_HUB=off"):
        open_checkpoint("hf-hub:tiny/clip")
    assert there.count("/api/") == 1


def test_a_download_can_be_stopped_and_needs_room(there: LoopbackHub, monkeypatch) -> None:
    with pytest.raises(Cancelled):
        hub_models.fetch("hf-hub:tiny/clip", context=Context(cancel=lambda: True))
    monkeypatch.setattr(fetch_module, "free_bytes", lambda folder: 10)
    with pytest.raises(CheckpointError, match="10 bytes are free"):
        hub_models.fetch("hf-hub:tiny/clip")


def test_who_stands_behind_the_process_sees_and_stops_a_download(there: LoopbackHub) -> None:
    stop, seen = threading.Event(), list[Progress]()
    with watch_progress(seen.append), watch_progress(cancel=stop):
        open_checkpoint("hf-hub:tiny/clip")
        assert seen[-1].phase == f"Fetching from {there.host}"
        stop.set()
        with pytest.raises(Cancelled):
            open_checkpoint(f"hf-hub:tiny/clip@{'0' * 40}")


@pytest.mark.full
def test_ctrl_c_ends_a_download_and_says_what_is_kept(there: LoopbackHub, tmp_path: Path) -> None:
    there.fail(port=STORAGE, stall=5000)
    environment = {"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2]), **there.environment(tmp_path / "home")}
    words = [sys.executable, "-m", "merging", "inspect", "hf-hub:tiny/clip"]
    process = subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    blobs = cache_folder() / "models--tiny--clip" / "blobs"
    end = time.monotonic() + 120
    while not any(path.stat().st_size >= 5000 for path in blobs.glob("*.part")):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, shown = process.communicate(timeout=60)
    assert process.returncode == 130 and time.monotonic() - start < 30  # alone it takes a second
    assert "are kept, and the next download goes on from there." in shown and "nothing was kept" not in shown
    open_checkpoint("hf-hub:tiny/clip")
    assert [seen.range for seen in there.requests if seen.port == STORAGE] == ["", "bytes=5000-"]


def test_a_cache_that_lacks_a_shard_is_not_used(there: LoopbackHub) -> None:
    commit, place = "0" * 40, cache_folder() / "models--tiny--big"
    folder = place / "snapshots" / commit
    folder.mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": SHARD}}))
    with pytest.raises(CheckpointError, match="no public model"):
        hub_models.fetch("hf-hub:tiny/big")
    (folder / SHARD).write_bytes(b"")
    assert hub_models.fetch("hf-hub:tiny/big").name == INDEX

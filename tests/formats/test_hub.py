"""Models by their name on a hub: chosen files only, from the cache or a pretended network, plain words without."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from types import SimpleNamespace

import pytest
import tiny
from safetensors.torch import save_file

from merging import settings
from merging.checkpoints import references
from merging.checkpoints.architecture import Architecture
from merging.errors import Cancelled, CheckpointError
from merging.formats import hub
from merging.formats.opening import open_checkpoint
from merging.open_clip_import import prepare_torchvision
from merging.recipes import chain_text

CONFIG = {"model_cfg": {"embed_dim": tiny.EMBED, "quick_gelu": True, "vision_cfg": tiny.ARCHITECTURE["vision_cfg"]}}
SHA = "0123456789abcdef"


class RepositoryNotFoundError(Exception):
    """As huggingface_hub's."""


class Hub:
    """Stands in for huggingface_hub: repositories in a folder, a cache beside it."""

    def __init__(self, root):
        self.there, self.cache, self.asked, self.fails = root / "there", root / "cache", [], None

    def put(self, name, **files):
        for file, write in files.items():
            path = self.there / name / file.replace("__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path)

    def snapshot(self, repository, revision):
        return self.cache / f"models--{repository.replace('/', '--')}" / "snapshots" / revision

    def HfApi(self):  # noqa: N802
        return self

    def model_info(self, repository, revision, timeout, files_metadata):
        self.asked.append(repository)
        assert timeout <= 30
        if self.fails:
            raise self.fails
        if not (self.there / repository).is_dir():
            raise RepositoryNotFoundError("404")
        files = [SimpleNamespace(rfilename=p.name, size=p.stat().st_size) for p in (self.there / repository).iterdir()]
        return SimpleNamespace(siblings=files, sha=revision or SHA)

    def hf_hub_download(self, repository, name, revision, etag_timeout, tqdm_class=None):
        folder = self.snapshot(repository, revision)
        folder.mkdir(parents=True, exist_ok=True)
        if tqdm_class is not None:
            bar = tqdm_class(total=10, desc=name)
            for _ in range(2):
                bar.update(5)
        return shutil.copyfile(self.there / repository / name, folder / name)

    def try_to_load_from_cache(self, repository, name, revision=None):
        path = self.snapshot(repository, revision or SHA) / name
        return str(path) if path.exists() else None


@pytest.fixture
def fake(tmp_path, monkeypatch):
    found = Hub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", found)
    monkeypatch.delenv(settings.HUB_SWITCH, raising=False)
    weights = lambda path: save_file(tiny.pretrained(), path)  # noqa: E731
    found.put(
        "tiny/clip", open_clip_model__safetensors=weights, model__safetensors=lambda p: p.write_bytes(b"of a kind"),
        open_clip_config__json=lambda p: p.write_text(json.dumps(CONFIG)),
        modeling__py=lambda p: p.write_text("raise SystemExit"),
    )  # fmt: skip
    return found


def test_a_model_is_downloaded_once_and_opened(fake):
    seen = []
    path = hub.fetch("hf-hub:tiny/clip", progress=seen.append)
    assert path.name == "open_clip_model.safetensors" and seen[-1].phase == "Downloading"
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "open_clip_config.json",
        "open_clip_model.safetensors",
    ]
    opened = open_checkpoint("hf-hub:tiny/clip")
    assert Architecture.of(opened).heads == 2 and opened.label == "hf-hub:tiny/clip"
    assert fake.asked == ["tiny/clip"], "the second time it comes from the cache"
    open_checkpoint("hf-hub:tiny/clip@main2")
    assert len(fake.asked) == 2, "another revision is another model"


def test_pretrained_tags_of_open_clip_are_found(fake, monkeypatch):
    prepare_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("open_clip")
    with pytest.raises(CheckpointError):
        open_checkpoint("ViT-B-32/openai")  # the stand-in does not have it yet
    (repository,) = fake.asked
    shutil.copytree(fake.there / "tiny/clip", fake.there / repository)
    assert Architecture.of(open_checkpoint("ViT-B-32/openai")).width == tiny.WIDTH
    with pytest.raises(CheckpointError, match=r"no file ViT-B-32/opnai, .* Did you mean 'openai'"):
        open_checkpoint("ViT-B-32/opnai")
    with pytest.raises(CheckpointError, match="has no such pretrained model"):
        open_checkpoint("ViT-Z-9/openai")
    monkeypatch.setitem(sys.modules, "open_clip.pretrained", None)
    with pytest.raises(CheckpointError, match="pip install open_clip_torch"):
        open_checkpoint("ViT-B-32/openai")


def test_a_file_of_that_name_comes_first(fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ViT-B-32").mkdir()
    tiny.write(tmp_path / "ViT-B-32" / "mine", tiny.pretrained())
    assert not references.is_remote("ViT-B-32/mine") and references.is_remote("ViT-B-32/other")
    open_checkpoint("ViT-B-32/mine")
    assert not fake.asked
    problems: list[str] = []
    chain_text.check_file("hf-hub:tiny/clip", "the pretrained model", problems)
    assert not problems


def test_shards_and_adapters_are_taken_whole():
    index, shards = (
        "model.safetensors.index.json",
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
    )
    assert hub.needed_files([*shards, index, "config.json", "evil.py"]) == [index, *shards, "config.json"]
    adapter = ["adapter_config.json", "adapter_model.bin", "adapter_model.safetensors", "model.safetensors"]
    assert hub.needed_files(adapter) == ["adapter_model.safetensors", "adapter_config.json"]
    assert hub.needed_files(["pytorch_model.bin", "model.safetensors"]) == ["model.safetensors"]
    assert hub.needed_files(["flax_model.msgpack", "config.json"]) == []


def test_without_a_network_there_is_a_plain_sentence(fake):
    fake.fails = ConnectionError("[Errno -3] name resolution")
    with pytest.raises(CheckpointError, match=r"no connection to huggingface.co .* give its path") as caught:
        open_checkpoint("hf-hub:tiny/clip")
    assert "Errno" not in str(caught.value)
    fake.fails = TimeoutError()
    with pytest.raises(CheckpointError, match="no connection"):
        hub.fetch("hf-hub:tiny/clip")


def test_what_is_not_there_is_said(fake, monkeypatch):
    with pytest.raises(CheckpointError, match="no public model tiny/other"):
        hub.fetch("hf-hub:tiny/other")
    fake.put("tiny/code", modeling__py=lambda p: p.write_text(""))
    with pytest.raises(CheckpointError, match="has no weights that can be read"):
        hub.fetch("hf-hub:tiny/code")
    for odd in ("hf-hub:clip", "hf-hub:../../etc/passwd", "hf-hub:a/b@../c", "hf-hub:a/b c", "hf-hub:https://x/y"):
        with pytest.raises(CheckpointError, match="write hf-hub:organization/name"):
            hub.fetch(odd)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match="pip install huggingface_hub"):
        hub.fetch("hf-hub:tiny/clip")


def test_it_can_be_switched_off_and_held_to_the_cache(fake, monkeypatch):
    monkeypatch.setenv(settings.HUB_SWITCH, "cached")
    with pytest.raises(CheckpointError, match="MERGESCOPE_HUB=cached"):
        open_checkpoint("hf-hub:tiny/clip")
    assert not fake.asked
    monkeypatch.delenv(settings.HUB_SWITCH)
    open_checkpoint("hf-hub:tiny/clip")
    monkeypatch.setenv(settings.HUB_SWITCH, "cached")
    open_checkpoint("hf-hub:tiny/clip")
    monkeypatch.setenv(settings.HUB_SWITCH, "off")
    with pytest.raises(CheckpointError, match="MERGESCOPE_HUB=off"):
        open_checkpoint("hf-hub:tiny/clip")
    assert len(fake.asked) == 1


def test_a_download_can_be_stopped_and_needs_room(fake, monkeypatch):
    with pytest.raises(Cancelled):
        hub.fetch("hf-hub:tiny/clip", cancel=lambda: True)
    monkeypatch.setattr(hub, "free_bytes", lambda folder: 10)
    with pytest.raises(CheckpointError, match="10 bytes are free"):
        hub.fetch("hf-hub:tiny/clip")


def test_a_cache_that_lacks_a_shard_is_not_used(fake):
    folder = fake.snapshot("tiny/big", SHA)
    folder.mkdir(parents=True)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model-00001-of-00001.safetensors"}})
    )
    with pytest.raises(CheckpointError, match="no public model"):
        hub.fetch("hf-hub:tiny/big")
    (folder / "model-00001-of-00001.safetensors").write_bytes(b"")
    assert hub.fetch("hf-hub:tiny/big").name == "model.safetensors.index.json"

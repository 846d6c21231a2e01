"""The bundled benchmark is what its manifest says, loads into open_clip's own tower, and keeps its promises of size."""

from __future__ import annotations

import hashlib
import json
import re
import warnings

import pytest
import torch

from merging.base import settings
from merging.base.open_clip_import import prepare_torchvision
from merging.images.benchmarks.benchmark import EXEMPLARS, SPLITS, Benchmark
from merging.images.image_encoder import Encoder
from merging.models.formats.model_sources import open_checkpoint
from sample_data.build import notices

MANIFEST = json.loads((settings.BUNDLED_FOLDER / "manifest.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def benchmark():
    return Benchmark.load()


@pytest.mark.parametrize("name", sorted(MANIFEST["files"]))
def test_every_file_is_the_one_in_the_manifest(name):
    content = (settings.BUNDLED_FOLDER / name).read_bytes()
    assert len(content) == MANIFEST["files"][name]["bytes"]
    assert hashlib.sha256(content).hexdigest() == MANIFEST["files"][name]["sha256"]


def test_the_text_of_every_license_has_an_address():
    notice = (settings.BUNDLED_FOLDER / "NOTICE").read_text("utf-8")
    license_names = re.findall(r"^  license: +(.+)$", notice, re.MULTILINE)
    assert len(license_names) > 45 and notices.list_without_text(license_names) == []
    assert notices.list_without_text(["OFL-1.1 or WTFPL"]) == ["WTFPL"]
    assert notice.endswith(notices.TAIL.format(texts=notices.license_texts()))
    assert all(address in notice for address in notices.TEXTS)


def test_the_manifest_names_every_model_and_data_set():
    found = {path.relative_to(settings.BUNDLED_FOLDER).as_posix() for kind in ("models", "data")
             for path in (settings.BUNDLED_FOLDER / kind).iterdir()}  # fmt: skip
    assert found <= set(MANIFEST["files"])
    files = [path for path in settings.BUNDLED_FOLDER.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    total = sum(path.stat().st_size for path in files)
    assert total < 110_000_000


def test_tasks_splits_and_heads_belong_together(benchmark):
    assert len(benchmark.experts) == 8 and len(benchmark.tasks) - 8 >= 5
    for task in benchmark.tasks:
        assert len(task.descriptions) == len(task.class_names) and task.license and task.source
        seen: set[bytes] = set()
        for split in (*SPLITS, *([EXEMPLARS] if task.has_expert else [])):
            images, _ = benchmark.load_images(task.key, split)
            assert len(images) >= (64 if split == EXEMPLARS else 200)
            hashes = {image.tobytes() for image in images}
            assert not seen & hashes, f"{task.key}: an image is in two splits"
            seen |= hashes
        assert torch.allclose(benchmark.load_head(task.key).norm(dim=1), torch.ones(len(task.class_names)), atol=1e-5)


@pytest.mark.parametrize("name", ["pretrained", "fashion", "multitask"])
def test_the_towers_load_into_open_clips_own_class_and_give_the_same_features(name, benchmark):
    prepare_torchvision()
    with warnings.catch_warnings():  # open_clip's imports emit deprecation warnings of their own
        warnings.simplefilter("ignore")
        from open_clip.model import CLIPVisionCfg, _build_vision_tower
    checkpoint = open_checkpoint(f"bundled:{name}")
    stated = json.loads(checkpoint.metadata["architecture"])
    tower = _build_vision_tower(stated["embed_dim"], CLIPVisionCfg(**stated["vision_cfg"]), stated["quick_gelu"])
    state = {n.removeprefix("visual."): value.float() for n, value in checkpoint.state_dict().items()}
    tower.load_state_dict(state, strict=True)
    images = benchmark.preprocess(benchmark.load_images("fashion", "choosing")[0][:16])
    with torch.inference_mode():
        assert torch.allclose(tower.eval()(images), Encoder.from_checkpoint(checkpoint)(images), atol=1e-5)

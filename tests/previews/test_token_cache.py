"""Kept tokens: a pass from the middle gives the bits of the whole pass, within a bound of memory."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch

from merging.images.image_encoder import Encoder
from merging.models.architecture import Architecture
from merging.study.previews.preview_samples import ImageBatch
from merging.study.previews.token_cache import CacheResolution, TokenCache

ALL = CacheResolution(1, torch.float32)
TOKENS = 6 * tiny.TOKENS * tiny.WIDTH * 4  # bytes that enter one section for one batch


def encoder(state: dict[str, torch.Tensor]) -> Encoder:
    return Encoder.from_checkpoint(tiny.checkpoint(state))


def batch(number: int = 0) -> ImageBatch:
    pixels = np.random.default_rng(number).integers(0, 256, (6, tiny.SIZE, tiny.SIZE, 3), dtype=np.uint8)
    return ImageBatch((number,), pixels, (("t", slice(0, 6), 0),))


def prepare(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


def whole(one: Encoder, number: int = 0) -> torch.Tensor:
    with torch.inference_mode():
        return one(prepare(batch(number).images))


@pytest.fixture(scope="module")
def base() -> dict[str, torch.Tensor]:
    return tiny.pretrained()


@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_pass_from_the_first_change_has_the_bits_of_the_whole_one(base, first):
    prefix = {1: "visual.transformer.resblocks.0.", 2: "visual.transformer.resblocks.1.", 3: "visual.ln_post."}[first]
    changed = {name: value * 1.5 if name.startswith(prefix) else value for name, value in base.items()}
    cache, names = TokenCache(), ["stem", "a", "b", "head"]
    assert cache.features(encoder(base), names, batch(), prepare, ALL).equal(whole(encoder(base)))
    other = [*names[:first], "other", *names[first + 1 :]]
    assert cache.find_start(other, batch()) == first
    assert cache.features(encoder(changed), other, batch(), prepare, ALL).equal(whole(encoder(changed)))
    assert not whole(encoder(changed)).equal(whole(encoder(base)))


def test_other_images_and_other_sections_share_nothing(base):
    cache, names = TokenCache(), ["stem", "a", "b", "head"]
    cache.features(encoder(base), names, batch(), prepare, ALL)
    assert cache.find_start(names, batch(1)) == 0 and cache.find_start(["other", *names[1:]], batch()) == 0
    assert cache.features(encoder(base), names, batch(1), prepare, ALL).equal(whole(encoder(base), 1))


def test_half_precision_is_close(base):
    cache, names = TokenCache(), ["stem", "a", "b", "head"]
    half = CacheResolution(1, torch.float16)
    first = cache.features(encoder(base), names, batch(), prepare, half)
    again = cache.features(encoder(base), names, batch(), prepare, half)
    assert first.equal(whole(encoder(base))) and not again.equal(first)
    assert (again - first).norm() < 2e-3 * first.norm()
    assert cache.nbytes == 3 * TOKENS // 2 and half.is_rounding and not ALL.is_rounding


def test_the_least_recently_used_make_room_but_not_what_is_in_use(base):
    cache, one = TokenCache(6 * TOKENS), encoder(base)
    names = {key: [f"stem {key}", "a", "b", "head"] for key in "xyz"}
    for key in "xy":
        cache.features(one, names[key], batch(), prepare, ALL)
    cache.begin(names["x"])  # y was used later, and still goes first
    cache.features(one, names["z"], batch(), prepare, ALL)
    assert [cache.find_start(names[key], batch()) for key in "xyz"] == [3, 0, 3]
    cache.features(one, names["y"], batch(), prepare, ALL)  # there is no room: both others are in use
    assert [cache.find_start(names[key], batch()) for key in "xyz"] == [3, 0, 3] and cache.nbytes == 6 * TOKENS
    cache.begin()
    cache.features(one, names["y"], batch(), prepare, ALL)
    assert [cache.find_start(names[key], batch()) for key in "xyz"] == [0, 3, 3]


def test_depths_are_thinned_out_before_tokens_are_rounded():
    bundled = Architecture(image_size=32, patch_size=8, width=192, layers=6, heads=4, embed_dim=96, quick_gelu=True)
    vit = Architecture(image_size=224, patch_size=32, width=768, layers=12, heads=12, embed_dim=512, quick_gelu=True)
    large = Architecture(image_size=224, patch_size=14, width=1024, layers=24, heads=16, embed_dim=768, quick_gelu=True)
    assert CacheResolution.choose(bundled, 480) == CacheResolution(1, torch.float32)  # 44 MB
    assert CacheResolution.choose(bundled, 3600) == CacheResolution(2, torch.float32)
    assert CacheResolution.choose(vit, 128) == CacheResolution(1, torch.float32)  # 256 MB
    assert CacheResolution.choose(vit, 512) == CacheResolution(3, torch.float16)
    assert CacheResolution.choose(large, 128) == CacheResolution(9, torch.float16)
    assert CacheResolution.choose(large, 10_000) == CacheResolution(0, torch.float32)
    assert [section for section in range(1, 8) if CacheResolution(3, torch.float16).is_cached(section)] == [1, 4, 7]
    assert not any(CacheResolution(0, torch.float32).is_cached(section) for section in range(8))

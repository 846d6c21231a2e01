"""`make sample-data` calls functions that exist: it runs for an hour, so no other test runs it."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np

from sample_data import make
from sample_data.build import check, corpus, export, finetune, notices, pretrain

MODULES = {module.__name__.split(".")[-1]: module for module in (check, corpus, export, finetune, notices, pretrain)}


def test_every_function_that_the_stages_call_exists():
    nodes = ast.walk(ast.parse(Path(make.__file__).read_text("utf-8")))
    uses = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    of_stages = [(node.value.id, node.attr) for node in uses if node.value.id in MODULES]
    assert len({module for module, _ in of_stages}) == len(MODULES)
    assert [pair for pair in of_stages if not hasattr(MODULES[pair[0]], pair[1])] == []


def test_further_test_images_repeat_none():
    from sample_data.build.tasks import BY_KEY

    images, labels = corpus.draw_set(BY_KEY["uci_digits"], "more", corpus.MORE, export.DATA_SEED)
    first, _ = corpus.draw_set(BY_KEY["uci_digits"], "test", corpus.TEST, export.DATA_SEED)
    assert len(images) == len(labels) == 130  # of at most 240: its source has no more
    assert not {image.tobytes() for image in images} & {image.tobytes() for image in first}
    assert list(np.bincount(labels)) == [13] * 10

"""Tables of the charts of one image, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

SIDE, BLOCKS, HEADS = 3, 4, 2


def _models(number: int) -> list[tuple[str, str]]:
    return [(f"m{model:03}", f"Merge {model}") for model in range(number)]


def _tokens() -> list[tuple[int, int, int]]:
    """Token, row and column, the class token first."""
    return [(0, -1, -1), *((1 + n, n // SIDE, n % SIDE) for n in range(SIDE * SIDE))]


def image_lens(models: int = 4, classes: int = 4, seed: int = 0) -> pd.DataFrame:
    """The probabilities of a few classes at every depth, and the accuracy of the same reading."""
    rng = np.random.default_rng(seed)
    rows = []
    for key, title in _models(models):
        for depth in range(BLOCKS + 1):
            shares = rng.dirichlet(np.full(classes, 0.5 + depth))
            ranks = (-shares).argsort().argsort() + 1
            for number in range(classes):
                known = (depth / BLOCKS * 0.7, depth / BLOCKS * 0.6, depth / BLOCKS * 0.8 + 0.1, 240)
                shown = (number, f"class {number}", shares[number], ranks[number], number == 1, number < 3)
                rows.append((key, title, depth, *shown, *known))
    names = ["model", "title", "depth", "number", "class", "probability", "rank", "right", "line"]
    return pd.DataFrame(rows, columns=[*names, "accuracy", "low", "high", "n"])


def image_attention(models: int = 4, seed: int = 0) -> pd.DataFrame:
    """The views of one block in as many models."""
    rng = np.random.default_rng(seed)
    rows = []
    for key, title in _models(models):
        for view in (*(f"head {head}" for head in range(HEADS)), "mean of heads", "rollout", "contribution"):
            shares = rng.dirichlet(np.ones(SIDE * SIDE + 1))
            rows += [
                (key, title, 2, view, *token, share, share) for token, share in zip(_tokens(), shares, strict=True)
            ]
    return pd.DataFrame(rows, columns=["model", "title", "block", "view", "token", "row", "column", "weight", "share"])


def image_attention_change(models: int = 4, seed: int = 0) -> pd.DataFrame:
    """The change of every head of as many runs."""
    rng = np.random.default_rng(seed)
    rows = [
        (key, title, "Pretrained", block, head, rng.uniform())
        for key, title in _models(models)
        for block in range(BLOCKS)
        for head in range(HEADS)
    ]
    return pd.DataFrame(rows, columns=["model", "title", "against", "block", "head", "distance"])


def image_drift(models: int = 4, seed: int = 0) -> pd.DataFrame:
    """The drift of every token at every depth in as many runs, with a data set's scale."""
    rng = np.random.default_rng(seed)
    rows = []
    for key, title in _models(models):
        for depth in range(BLOCKS + 1):
            for token in _tokens():
                drift, high = rng.uniform(0, 0.2 * (depth + 1)), 0.15 * (depth + 1)
                rows.append((key, title, "Pretrained", depth, *token, drift, high / 2, high, drift > high))
    names = ["model", "title", "against", "depth", "token", "row", "column", "drift", "mean", "high", "past"]
    return pd.DataFrame(rows, columns=names)


def image_drift_grid(models: int = 4, seed: int = 0) -> pd.DataFrame:
    """The same for the chart over the image."""
    return image_drift(models, seed)


def image_restore(models: int = 4, seed: int = 0) -> pd.DataFrame:
    """Three kinds of tokens put in before every block of as many runs."""
    rng = np.random.default_rng(seed)
    rows = []
    for key, title in _models(models):
        for depth in range(BLOCKS + 1):
            for kind in ("class", "patches", "all"):
                share = rng.uniform()
                answer = (share - 0.3, f"class {int(3 * share)}", share > 0.5)
                rows.append((key, title, "Pretrained", depth, kind, "class 1", share, *answer))
    names = ["model", "title", "against", "depth", "tokens", "followed", "probability", "change", "answer", "right"]
    return pd.DataFrame(rows, columns=names)


def image_restore_tokens(models: int = 4, seed: int = 0) -> pd.DataFrame:
    """Every single token put in before every block of as many runs."""
    rng = np.random.default_rng(seed)
    rows = []
    for key, title in _models(models):
        for depth in range(BLOCKS + 1):
            for token in _tokens():
                share = rng.uniform()
                answer = (share - 0.3, f"class {int(3 * share)}", share > 0.5)
                rows.append((key, title, "Pretrained", depth, *token, "class 1", share, *answer))
    names = ["model", "title", "against", "depth", "token", "row", "column", "followed", "probability"]
    return pd.DataFrame(rows, columns=[*names, "change", "answer", "right"])


def image_occlude(models: int = 4, seed: int = 0) -> pd.DataFrame:
    """Every patch occluded in as many models."""
    rng = np.random.default_rng(seed)
    rows = []
    for key, title in _models(models):
        for token in _tokens()[1:]:
            change = rng.normal(0, 0.05)
            rows.append((key, title, *token, "class 1", 0.1, 0.1 + change, change))
    names = ["model", "title", "token", "row", "column", "followed", "before", "margin", "change"]
    return pd.DataFrame(rows, columns=names)


def image_neighbors(models: int = 4, seed: int = 0) -> pd.DataFrame:
    """Eight neighbors in as many models."""
    rng = np.random.default_rng(seed)
    rows = []
    for key, title in _models(models):
        for rank in range(1, 9):
            number = int(rng.integers(0, 40))
            image = (f"t1:choosing:{number}", "t1", f"class {number % 5}")
            rows.append((key, title, rank, *image, 1 - rank / 20, number % 2 == 0))
    return pd.DataFrame(rows, columns=["model", "title", "rank", "image", "task", "class", "cosine", "shared"])

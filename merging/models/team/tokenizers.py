"""Reads the numbers of a model's tokens from the files of Transformers' tokenizers beside its weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from merging.base.errors import CheckpointError
from merging.base.files.paths import open_regular, path_fingerprint, resolve_contained
from merging.base.files.strict_json import parse_json

MAX_TOKENIZER_BYTES = 64_000_000  # of a tokenizer's file
MAX_TOKENIZER_VALUES = 3_000_000  # in a file: 256,000 tokens and 580,000 rules of two tokens are 1.5 million
TOKENIZER_FILE, VOCABULARY_FILES, WORD_LIST_FILE, ADDED_TOKENS_FILE = (
    "tokenizer.json",
    ("vocab.json",),
    "vocab.txt",
    "added_tokens.json",
)


def read_tokens(folder: Path | None) -> dict[str, int] | None:
    """{token: its number} of the tokenizer in a folder; None if the folder has no tokenizer that can be read."""
    if folder is None:
        return None
    try:
        if (raw := _read_bytes(folder / TOKENIZER_FILE)) is not None:
            return _parse_tokenizer(parse_json(raw, TOKENIZER_FILE, max_values=MAX_TOKENIZER_VALUES))
        numbers: dict[str, int] | None = None
        for file in VOCABULARY_FILES:
            if (raw := _read_bytes(folder / file)) is not None:
                numbers = _parse_numbers(parse_json(raw, file, max_values=MAX_TOKENIZER_VALUES))
        if numbers is None and (raw := _read_bytes(folder / WORD_LIST_FILE)) is not None:
            numbers = {word: number for number, word in enumerate(_split_lines(raw.decode("utf-8")))}
        if numbers is not None and (raw := _read_bytes(folder / ADDED_TOKENS_FILE)) is not None:
            numbers |= _parse_numbers(parse_json(raw, ADDED_TOKENS_FILE))
    except (CheckpointError, OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError):
        return None
    return numbers


def tokenizer_fingerprint(folder: Path | None) -> tuple[tuple[int, ...], ...]:
    """Numbers that change when a tokenizer's file in a folder may have changed."""
    names = (TOKENIZER_FILE, *VOCABULARY_FILES, WORD_LIST_FILE, ADDED_TOKENS_FILE)
    return () if folder is None else tuple(path_fingerprint(folder / name) for name in names)


def _read_bytes(path: Path) -> bytes | None:
    """The content of a file; None if there is no file.

    Raises:
        CheckpointError: the file is too large, or a link to another folder.
    """
    if not os.path.lexists(path):
        return None
    with os.fdopen(open_regular(resolve_contained(path)), "rb") as file:
        raw = file.read(MAX_TOKENIZER_BYTES + 1)
    if len(raw) > MAX_TOKENIZER_BYTES:
        raise CheckpointError(f"{path.name} is larger than any tokenizer; refused.")
    return raw


def _split_lines(text: str) -> list[str]:
    """The lines of a text as Transformers reads them: Unicode's other line breaks belong to tokens."""
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _parse_tokenizer(content: dict[str, Any]) -> dict[str, int]:
    """{token: its number} in a tokenizer.json."""
    vocab = content["model"]["vocab"]
    numbers = (
        _parse_numbers(vocab)
        if isinstance(vocab, dict)
        else {str(entry[0]): number for number, entry in enumerate(vocab)}
    )
    return numbers | {str(token["content"]): int(token["id"]) for token in content.get("added_tokens") or ()}


def _parse_numbers(content: dict[str, Any]) -> dict[str, int]:
    """{token: its number} without values that are not whole numbers."""
    return {token: number for token, number in content.items() if type(number) is int}

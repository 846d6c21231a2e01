"""The files beside a model's weights, except code: configuration, tokenizer, preprocessing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merging.base.errors import CheckpointError
from merging.base.files.paths import open_regular, resolve_contained
from merging.base.files.records import write_json
from merging.models.checkpoint import Checkpoint
from merging.models.families import Role
from merging.models.formats.configs import COMPANION_FILES, TOKENIZER, TRANSFORMERS, VOCABULARY, read_json
from merging.models.team.tokenizers import read_tokens

MAX_FILE_BYTES = 64_000_000  # bytes of one file


@dataclass(frozen=True, slots=True)
class Companions:
    """The folder of the pretrained model, and the folder of the expert or adapter if its model is exported.

    The expert's configuration replaces the pretrained model's; its tokenizer does so, too, if ``uses_expert_tokens``.
    """

    folder: Path | None
    expert_folder: Path | None = None
    uses_expert_tokens: bool = False
    token_rows: tuple[int, int] = (0, 0)  # of the token table: as a copied configuration may state; as written

    def copy_to(self, target: Path) -> dict[str, str]:
        """Copy the files. Returns {name: reason} for existing files that were not copied."""
        base_files = tuple(name for name in COMPANION_FILES if not (self.uses_expert_tokens and name in TOKENIZER))
        problems = copy_companions(self.folder, target, base_files)
        problems |= copy_companions(
            self.expert_folder, target, (TRANSFORMERS, *(TOKENIZER if self.uses_expert_tokens else ()))
        )
        if self.token_rows[0] != self.token_rows[1]:
            self._write_token_count(target / TRANSFORMERS)
        return problems

    def has_file(self, name: str) -> bool:
        """Whether one of the two folders has a file with that name, copied or not."""
        return any(
            folder is not None and os.path.lexists(folder / name) for folder in (self.folder, self.expert_folder)
        )

    def _write_token_count(self, path: Path) -> None:
        """Write the model's number of tokens into a configuration."""
        config = read_json(path)
        if config is not None:
            base = read_json(self.folder / TRANSFORMERS) if self.folder is not None else None
            _replace_token_count(config, base or {}, *self.token_rows)
            write_json(path, config)


def _replace_token_count(config: dict[str, Any], base: Mapping[str, Any], old_rows: int, rows: int) -> None:
    """Replace ``old_rows`` by ``rows`` in a configuration; special tokens beyond them become the base's, or None."""
    for key, value in config.items():
        base_value = base.get(key)
        if isinstance(value, dict):
            _replace_token_count(value, base_value if isinstance(base_value, dict) else {}, old_rows, rows)
        elif key == "vocab_size" and value == old_rows:
            config[key] = rows
        elif key.endswith("_token_id") and type(value) is int and value >= rows:
            config[key] = base_value if type(base_value) is int and base_value < rows else None


def has_tokenizer(folder: Path | None, rows: int = 0) -> bool:
    """Whether a folder has a tokenizer with all token ids below ``rows``; if ``rows`` is 0, any tokenizer."""
    if folder is None or not any((folder / name).is_file() for name in VOCABULARY):
        return False
    return not rows or max((read_tokens(folder) or {}).values(), default=0) < rows


def has_other_tokens(expert_folder: Path | None, base_folder: Path | None, rows: int) -> bool:
    """Whether the tokenizer of an expert with ``rows`` rows is usable and has other tokens than the base's."""
    return has_tokenizer(expert_folder, rows) and (
        not has_tokenizer(base_folder) or read_tokens(expert_folder) != read_tokens(base_folder)
    )


def count_token_rows(model: Checkpoint) -> int:
    """The number of rows of a model's first token table; 0 if there is none."""
    tables = (p.name for p in model.parameters if p.role == Role.VOCABULARY)
    return next((model.infos[name].shape[0] for name in tables), 0)


def copy_companions(folder: Path | None, target: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Copy named files of a folder. Returns {name: reason} for existing files that were not copied."""
    problems: dict[str, str] = {}
    for name in names:
        if folder is None or not os.path.lexists(folder / name):
            continue
        try:
            _copy_file(folder / name, target / name)
        except (CheckpointError, OSError) as error:
            problems[name] = str(error)
    return problems


def _copy_file(source: Path, target: Path) -> None:
    """Copy a regular file of at most ``MAX_FILE_BYTES``. A link may only lead to a file in the same folder."""
    with os.fdopen(open_regular(resolve_contained(source)), "rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            raise CheckpointError(f"{source.name} is larger than {MAX_FILE_BYTES // 1_000_000} MB")
        with target.open("wb") as copy:
            shutil.copyfileobj(file, copy)

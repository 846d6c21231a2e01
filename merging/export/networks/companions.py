"""What lies beside a model's weights and is no code: its configuration, its tokenizer, how its inputs are prepared."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from merging.errors import CheckpointError
from merging.files.paths import inside, open_regular

CONFIG = "config.json"
COMPANIONS = (
    CONFIG, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model", "sentencepiece.bpe.model",
    "chat_template.jinja", "preprocessor_config.json", "processor_config.json",
)  # fmt: skip
LARGEST = 64_000_000  # bytes of one of them


def copy_companions(folder: Path | None, target: Path, names: tuple[str, ...] = COMPANIONS) -> dict[str, str]:
    """Copy what lies in a folder. Returns {name: why it was not copied}, for those that lie there and were not."""
    refused: dict[str, str] = {}
    for name in names:
        if folder is None or not os.path.lexists(folder / name):
            continue
        try:
            _copy(folder / name, target / name)
        except (CheckpointError, OSError) as error:
            refused[name] = str(error)
    return refused


def _copy(source: Path, target: Path) -> None:
    """Copy a regular file of a moderate size, whose link, if it is one, leads nowhere else."""
    with os.fdopen(open_regular(inside(source)), "rb") as file:
        if os.fstat(file.fileno()).st_size > LARGEST:
            raise CheckpointError(f"{source.name} is larger than {LARGEST // 1_000_000} MB")
        with target.open("wb") as copy:
            shutil.copyfileobj(file, copy)

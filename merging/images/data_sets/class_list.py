"""Class names in a text file: one per line, in the order of labels, as in WebDataset folders."""

from __future__ import annotations

from pathlib import Path

from merging.base.errors import CheckpointError, TaskError
from merging.base.files.paths import resolve_contained

CLASS_NAMES_FILE = "classnames.txt"
MAX_FILE_BYTES = 1 << 20  # of a file of class names


def read_names_text(path: Path) -> str:
    """The text of a small file of class names. Raises TaskError if it cannot be read, or is not UTF-8."""
    try:
        path = resolve_contained(path)
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TaskError(f"{path.name} is too large for a list of class names.")
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise TaskError(f"{path.name}, line {line}: it is not text in UTF-8.") from None
    except CheckpointError as error:
        raise TaskError(f"The class names cannot be read: {error}") from None
    except OSError as error:
        raise TaskError(f"The class names in {path.name} cannot be read: {error.strerror}.") from None


def split_lines(text: str) -> tuple[str, ...]:
    """The lines of a text that are not blank, stripped."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def read_listed_names(folder: Path) -> tuple[str, ...] | None:
    """The names in a folder's ``classnames.txt``; None if it has none."""
    path = folder / CLASS_NAMES_FILE
    return split_lines(read_names_text(path)) or None if path.is_file() else None

"""Small uploaded files: they are checked, then stored under the hash of their content."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from merging.base.errors import CheckpointError, StoreError
from merging.base.files import atomic
from merging.base.files.atomic import replace_file
from merging.base.files.disk import explain_os_errors, free_bytes
from merging.base.text import size_text
from merging.models.formats.configs import WEIGHT_SUFFIXES
from merging.models.formats.model_sources import open_checkpoint
from merging.sharing.catalog.model_listing import CatalogEntry

FOLDER = "uploads"
MAX_MB_PER_FILE = 64  # the server holds an uploaded file in memory
MAX_BYTES_PER_FILE, MAX_BYTES_TOTAL = MAX_MB_PER_FILE << 20, 1 << 30  # of one file, and of all uploads
DIGEST_LENGTH = 16  # hexadecimal digits of a folder's name
MAX_STEM_CHARACTERS = 60


def store_upload(root: Path, name: str, content: bytes | memoryview) -> CatalogEntry:
    """Store an uploaded file. ``name``, its name on the user's machine, serves only as a label.

    Raises:
        CheckpointError: the file is not a checkpoint; the message describes its content.
        StoreError: the file is too large, the stored uploads are too large, or the disk is full.
    """
    folder = root / FOLDER
    if len(content) > MAX_BYTES_PER_FILE:
        raise StoreError(
            f"The file is {size_text(len(content))}; an upload is at most {MAX_MB_PER_FILE} MB. Use a folder instead."
        )
    upload_folder = folder / hashlib.sha256(content).hexdigest()[:DIGEST_LENGTH]
    if earlier_upload := _find_upload(upload_folder):
        return earlier_upload
    stored_bytes = sum(item.path.stat().st_size for item in list_uploads(root))
    if stored_bytes + len(content) > MAX_BYTES_TOTAL:
        raise StoreError(
            f"Stored uploads are {size_text(stored_bytes)} of at most {size_text(MAX_BYTES_TOTAL)}; delete some first."
        )
    if len(content) > free_bytes(folder):
        raise StoreError(f"Only {size_text(free_bytes(folder))} are free on the disk.")
    label = make_safe_name(name)
    with explain_os_errors(label), replace_file(upload_folder / label) as path:
        path.write_bytes(content)
        try:
            open_checkpoint(path, label)
        except CheckpointError as error:
            raise CheckpointError(f"{error} It was not stored.") from None
    if (upload := _find_upload(upload_folder)) is None:
        raise StoreError(f"{label} was stored but cannot be found again; is the store's folder being cleared?")
    return upload


def list_uploads(root: Path) -> list[CatalogEntry]:
    """Every stored upload, by name."""
    folder = root / FOLDER
    upload_folders = sorted(folder.iterdir()) if folder.is_dir() else []
    uploads = [
        item
        for upload_folder in upload_folders
        if len(upload_folder.name) == DIGEST_LENGTH and (item := _find_upload(upload_folder))
    ]
    return sorted(uploads, key=lambda item: item.listed_path.casefold())


def delete_upload(root: Path, item: CatalogEntry) -> None:
    """Delete an upload. Raises StoreError if ``item`` is not an upload or cannot be removed."""
    upload_folder = item.path.parent
    if upload_folder.parent != root / FOLDER or not upload_folder.is_dir():
        raise StoreError(f"{item.name} is not an upload, so it was not deleted.")
    atomic.remove_entry(upload_folder, item.name)


def make_safe_name(name: str) -> str:
    """A file name that is valid on every system, with the ending of a checkpoint."""
    file_name = re.split(r"[\\/]", name)[-1]
    ending = next((suffix for suffix in WEIGHT_SUFFIXES if file_name.casefold().endswith(suffix)), ".safetensors")
    stem = file_name[: -len(ending)] if file_name.casefold().endswith(ending) else file_name
    stem = re.sub(r"[^\w.-]+", "_", stem, flags=re.ASCII).strip("._-")[:MAX_STEM_CHARACTERS]
    return f"{stem or 'model'}{ending}"


def _find_upload(upload_folder: Path) -> CatalogEntry | None:
    """The upload in a folder; None unless the folder has exactly one file."""
    paths = [path for path in sorted(upload_folder.iterdir()) if path.is_file()] if upload_folder.is_dir() else []
    return CatalogEntry(str(paths[0].absolute()), paths[0], f"uploads/{paths[0].name}") if len(paths) == 1 else None

"""Writes a snapshot into its folder, completely or not at all, after a check for private text."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from app.snapshot.headless import SnapshotError
from app.snapshot.live_desk import DATA_SUFFIX, DESK_TEXTS, unpack_data
from app.snapshot.site import PLOTLY_FILE
from merging.base import settings
from merging.base.files.temporary import OLD_KIND, temporary_name
from viz.report import private_names
from viz.report.report_contents import ReportError

MANIFEST = "snapshot.json"  # marks a folder as a snapshot, which another one may replace


def write_site(files: Mapping[str, bytes], out: Path, private: private_names.PrivateNames | None = None) -> None:
    """Write files into the folder ``out``; an earlier snapshot is replaced at the end, so it survives a failure.

    Raises:
        SnapshotError: a text contains something private, or the folder contains other files than a snapshot.
    """
    if out.exists() and not (out / MANIFEST).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise SnapshotError(f"{out} exists and is not a snapshot. Name a new or an empty folder.")
    check_privacy(
        files,
        private or private_names.find_private_names((str(settings.store_root()), str(settings.benchmark_folder()))),
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    new_folder = out.parent / temporary_name()
    new_folder.mkdir()
    try:
        for name, content in files.items():
            (new_folder / name).write_bytes(content)
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
        (new_folder / MANIFEST).write_text(json.dumps({"format": 1, "files": digests}, indent=1) + "\n", "utf-8")
        _replace_folder(new_folder, out)
    finally:
        shutil.rmtree(new_folder, ignore_errors=True)


def check_privacy(files: Mapping[str, bytes], private: private_names.PrivateNames) -> None:
    """Look for private text in every file but plotly.js and binary data. Raises SnapshotError naming the file."""
    for name, content in files.items():
        is_text = name != PLOTLY_FILE and not name.endswith(DATA_SUFFIX)
        if is_text or name == DESK_TEXTS:
            try:
                private_names.check_document((content if is_text else unpack_data(content)).decode(), private)
            except ReportError as error:
                raise SnapshotError(f"{name} was not written: {error}") from None


def _replace_folder(new_folder: Path, out: Path) -> None:
    """Replace the old folder by the new one; the old one is deleted last."""
    old_folder = out.parent / temporary_name(OLD_KIND)
    if out.exists():
        out.rename(old_folder)
    try:
        new_folder.rename(out)
    except OSError:
        if old_folder.exists():
            old_folder.rename(out)
        raise
    shutil.rmtree(old_folder, ignore_errors=True)

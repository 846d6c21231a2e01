"""The programs of others that the browser fetches are those that their list names, with their licenses beside them."""

from __future__ import annotations

import hashlib
import re

from app.saving.figure_files import VENDOR_FOLDER


def test_vendored_files_are_as_listed() -> None:
    listed = dict(
        re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", (VENDOR_FOLDER / "README.md").read_text("utf-8"), re.M)
    )
    files = {path.name: path for path in VENDOR_FOLDER.iterdir() if path.suffix in (".js", ".ttf")}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == listed
    assert {path.suffix[1:] for path in VENDOR_FOLDER.glob("LICENSE.*")} == {"jspdf", "svg2pdf", "Arimo"}

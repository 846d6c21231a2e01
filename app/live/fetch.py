"""Fetches the runtime that a browser runs networks with, or compares what is there: ``python -m app.live.fetch``."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import sys
import tarfile
import urllib.request
import zlib
from pathlib import Path

VENDOR_FOLDER = Path(__file__).parent / "vendor"
PACKAGE = "https://registry.npmjs.org/onnxruntime-web/-/onnxruntime-web-1.30.0.tgz"
PACKED = ".gz"  # the ending of files that are stored compressed; digests are of what they hold


def read_list() -> dict[str, str]:
    """{file: its SHA-256}, unpacked, as README.md beside the files lists them."""
    text = (VENDOR_FOLDER / "README.md").read_text("utf-8")
    return dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", text, re.MULTILINE))


def find_differences(folder: Path = VENDOR_FOLDER) -> list[str]:
    """The files of a folder that are missing or differ from the list; damaged ones count as different."""
    return [name for name, digest in read_list().items() if _digest(folder / name) != digest]


def _digest(path: Path) -> str:
    try:
        data = path.read_bytes()
        return hashlib.sha256(gzip.decompress(data) if path.suffix == PACKED else data).hexdigest()
    except (OSError, EOFError, zlib.error):
        return ""


def fetch(folder: Path = VENDOR_FOLDER) -> None:
    """Download the package and write its files into a folder. Raises OSError without a network."""
    with urllib.request.urlopen(PACKAGE) as response:
        package = io.BytesIO(response.read())
    with tarfile.open(fileobj=package) as archive:
        for name in read_list():
            member = archive.extractfile(f"package/dist/{name.removesuffix(PACKED)}")
            assert member is not None
            data = member.read()
            (folder / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith(PACKED) else data)


def main() -> None:
    """Fetch the files, unless all are there; exits with a sentence if some still differ."""
    if find_differences():
        fetch()
    if differences := find_differences():
        sys.exit(f"These files are not those that README.md lists: {', '.join(differences)}.")
    print(f"The files in {VENDOR_FOLDER} are those that README.md lists.")


if __name__ == "__main__":
    main()

"""Files of networks other than CLIP, written once a session by the libraries that know them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import family_files
import pytest

Files = tuple[Path, dict[str, Path]]  # a pretrained model and two experts of it


@pytest.fixture(scope="session")
def files_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Files]:
    """A function that gives the files of a kind; do not change them."""
    written: dict[str, Files] = {}

    def of(kind: str) -> Files:
        if kind not in written:
            at = tmp_path_factory.mktemp("kind")
            base = family_files.save(family_files.make_model(kind), at / "base")
            experts = {
                name: family_files.save(family_files.make_model(kind, n), at / name) for n, name in enumerate("ab", 1)
            }
            written[kind] = base, experts
        return written[kind]

    return of

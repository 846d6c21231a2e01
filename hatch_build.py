"""What the wheel holds: one package, ``mergescope``, with the repository's folders in it."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ENTRIES = {"app/notebook/installed.py": "mergescope/__init__.py", "merging/__main__.py": "mergescope/__main__.py"}
FOLDERS = ("merging", "viz", "app", "sample_data")
# What makes the benchmark, and the second team, with which the wheel would have more than 100 MB.
NOT_INSTALLED = ("sample_data/build/", "sample_data/make.py", "sample_data/library.py", "sample_data/gentle/")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Names the files of a wheel. An editable installation has the two entries, and the checkout on its path."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Say which file of the checkout becomes which file of the wheel."""
        if version == "editable":
            build_data["force_include_editable"] = ENTRIES
            return
        names = sorted(name for name in list_files(Path(self.root)) if not name.startswith(NOT_INSTALLED))
        self.entries = Path(tempfile.mkdtemp())  # copies, because a file goes to one place only
        copies = {shutil.copy(Path(self.root, name), self.entries): target for name, target in ENTRIES.items()}
        build_data["force_include"] = copies | {name: f"mergescope/{name}" for name in names}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copies."""
        if version != "editable":
            shutil.rmtree(self.entries)


def list_files(root: Path) -> list[str]:
    """The files of the folders that git tracks; without git, all but bytecode and hidden ones beside the settings."""
    try:
        done = subprocess.run(["git", "ls-files", "-z", *FOLDERS], cwd=root, capture_output=True, check=True)
        if names := done.stdout.decode().split("\0")[:-1]:
            return [name for name in names if (root / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        pass
    paths = (path.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file())
    return [path.as_posix() for path in paths if path.suffix != ".pyc" and path.name != "secrets.toml"]

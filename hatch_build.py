"""What the wheel holds: one package, ``mergescope``, with the repository's folders in it."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ENTRIES = {"app/notebook/installed.py": "mergescope/__init__.py", "merging/__main__.py": "mergescope/__main__.py"}
FOLDERS = ("merging", "viz", "app")
NOT_INSTALLED = {"build", "make.py", "library.py", "__pycache__"}  # of sample_data: what makes it


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Names the files of a wheel. An editable installation has the two entries, and the checkout on its path."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Say which file of the checkout becomes which file of the wheel."""
        if version == "editable":
            build_data["force_include_editable"] = ENTRIES
            return
        data = (path.name for path in (Path(self.root) / "sample_data").iterdir() if path.name not in NOT_INSTALLED)
        folders = [*FOLDERS, *(f"sample_data/{name}" for name in data)]
        build_data["force_include"] = ENTRIES | {folder: f"mergescope/{folder}" for folder in sorted(folders)}

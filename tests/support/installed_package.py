"""The built wheel in an environment of its own, in which the checkout cannot be read."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("app", "docs", "merging", "sample_data", "tests", "viz")
# Every Python of the environment loads it first, jobs and previews, too.
GUARD = """
import sys
HIDDEN = {hidden!r}
def _refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        if arguments[0].startswith(HIDDEN):
            raise FileNotFoundError(f"the checkout is hidden: {{arguments[0]}}")
sys.addaudithook(_refuse)
"""


@dataclass(frozen=True)
class Environment:
    """An environment with the wheel, and with the pinned packages of the one in which the tests run."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.folder / "bin" / "mergescope"

    @property
    def packages(self) -> Path:
        return self.folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def install(self, wheel: Path) -> None:
        """Install the wheel, also where the tests' own environment has the checkout as an editable package."""
        self.pip("install", "--no-deps", "--no-index", "--ignore-installed", str(wheel))

    def pip(self, *words: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "pip", "--python", str(self.python), "--quiet", *words],
            check=True, capture_output=True, text=True, env=clean_variables(),
        )  # fmt: skip

    def run(self, *words: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """The ended command, whose exit code is not checked."""
        return subprocess.run(
            list(map(str, words)), cwd=cwd, env=clean_variables() | variables, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip

    def list_files(self) -> set[str]:
        """Every file and folder but Python's own bytecode, which no package brings."""
        paths = (path for path in self.folder.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__")
        return {path.relative_to(self.folder).as_posix() for path in paths}


def clean_variables() -> dict[str, str]:
    """This process's variables but those that lead to the checkout, set a server up or make warnings errors."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "PYTHONWARNINGS"} and not name.startswith(("MERGESCOPE_", "STREAMLIT_"))
    }


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built without a network."""
    done: Any = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT],
        capture_output=True, text=True, check=False, env=clean_variables(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path) -> Environment:
    """An environment without the wheel, whose processes find no file of the checkout."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    made = Environment(folder)
    (made.packages / "pinned.pth").write_text(sysconfig.get_path("purelib") + "\n")
    hidden = tuple(f"{ROOT / name}{os.sep}" for name in FOLDERS)
    (made.packages / "sitecustomize.py").write_text(GUARD.format(hidden=hidden))
    return made

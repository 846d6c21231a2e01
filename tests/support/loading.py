"""What code loads, seen in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def list_loaded_modules(code: str) -> set[str]:
    """Names of the modules that are loaded after that code has run."""
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())

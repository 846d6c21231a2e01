"""Files that are no good checkpoints, each with what must be said of it: damaged, lying, or made to run code.

Every function takes an empty folder and gives the path to open. Files that are made to run code would create the
folder's file "marker".
"""

from __future__ import annotations

from bad_archives import ARCHIVES
from bad_paths import PATHS
from bad_pickles import RUNNING
from bad_safetensors import SAFETENSORS
from bad_torch import TORCH

CASES = {
    f"{group}: {name}": case
    for group, cases in (
        ("safetensors", SAFETENSORS),
        ("path", PATHS),
        ("runs", RUNNING),
        ("torch", TORCH),
        ("archive", ARCHIVES),
    )
    for name, case in cases.items()
}

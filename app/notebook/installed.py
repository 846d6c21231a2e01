"""Merge fine-tuned CLIP vision experts and see what the merge did: what ``import mergescope`` gives.

This file is installed as ``mergescope/__init__.py``, beside the packages ``merging``, ``viz`` and ``app``. It makes
them importable and hands on their public names, which load on first use.
"""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = ("merging", "viz", "app")
_folder = Path(__file__).resolve().parent
if all((_folder / name).is_dir() for name in PACKAGES) and str(_folder) not in sys.path:
    sys.path.append(str(_folder))  # at the end: a program's own modules keep their names


def check_packages() -> None:
    """Raises ImportError if Python finds another package under one of the three names."""
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        own_folder = _folder if (_folder / name).is_dir() else origin and origin.parent.parent
        if (
            origin is None
            or origin.parent.parent != own_folder
            or not (own_folder / "merging/base/version.py").is_file()
        ):
            raise ImportError(
                f"Mergescope needs its own package {name!r}, but Python finds "
                f"{f'another one, {origin}' if origin else 'none'}. Rename that one, take its folder off the path, or "
                "start Python in another folder; if it is imported already, start Python anew.",
                name=name,
            )


check_packages()


def __getattr__(name: str) -> Any:
    from app import notebook

    module = importlib.import_module(notebook.DEFINED_IN.get(name, "merging"))
    try:
        return getattr(module, name)
    except AttributeError:
        raise AttributeError(f"module 'mergescope' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    import merging
    from app import notebook

    return sorted({*merging.__all__, *notebook.DEFINED_IN})

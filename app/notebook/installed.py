"""Merge fine-tuned CLIP vision experts and see what the merge did: what ``import mergescope`` gives.

This file is installed as ``mergescope/__init__.py``, beside the packages ``merging``, ``viz`` and ``app``. It makes
them importable and hands on their public names, which load on first use.
"""

import importlib as _importlib
import sys as _sys
from importlib.util import find_spec as _find_spec
from pathlib import Path as _Path
from typing import Any as _Any

_PACKAGES = ("merging", "viz", "app")
_FOLDER = _Path(__file__).resolve().parent
_IS_COMMAND = _Path(_sys.argv[0] if _sys.argv else "").stem in ("mergescope", "-m")  # -m: ``python -m mergescope``


def _add_to_path() -> None:
    """Put the folder of the packages on the path: first for a command, last in a program, whose modules keep names."""
    if all((_FOLDER / name).is_dir() for name in _PACKAGES) and str(_FOLDER) not in _sys.path:
        _sys.path.insert(0 if _IS_COMMAND else len(_sys.path), str(_FOLDER))


def _describe_wrong_package() -> str:
    """The package that Python finds in place of one of the three, in a sentence; empty if there is none."""
    for name in _PACKAGES:
        try:
            spec = _find_spec(name)
        except ValueError:  # a module that a program made has none
            spec = None
        origin = _Path(spec.origin).resolve() if spec is not None and spec.origin else None
        own_folder = _FOLDER if (_FOLDER / name).is_dir() else origin and origin.parent.parent
        if not origin or origin.parent.parent != own_folder or not (own_folder / "merging/base/version.py").is_file():
            return (
                f"Mergescope needs its own package {name!r}, but Python finds "
                f"{f'another one, {origin}' if origin else 'another one or none'}. Rename that one, take its folder "
                "off the path, or start Python in another folder; if it is imported already, start Python anew."
            )
    return ""


_add_to_path()
if _problem := _describe_wrong_package():
    raise SystemExit(_problem) if _IS_COMMAND else ImportError(_problem)


def __getattr__(name: str) -> _Any:
    if name in _PACKAGES:  # not a second copy of the package beside this file
        return _importlib.import_module(name)
    from app import notebook

    module = _importlib.import_module(notebook.DEFINED_IN.get(name, "merging"))
    try:
        return getattr(module, name)
    except AttributeError:
        raise AttributeError(f"module 'mergescope' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    import merging
    from app import notebook

    return sorted({*merging.__all__, *notebook.DEFINED_IN})

"""Which files a value is handed through: ``density`` from the command line to TIES, a model's path to its tensors.

    python tests/bench/walks.py

A merge of bundled models runs, and every call is looked at. A file counts if one of its functions is given the value by
itself: as text, number or path, in a list or mapping, or in ``Params``. A model that is named but not located, a
``ModelRef``, has a walk of its own. What holds these in turn, such as a recipe or a step of it, is not looked into, and
neither is long text such as the recipe in a file's metadata. The walk of ``density`` ends where TIES first gets it, the
others where the merge begins to read tensors.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from merging.methods.params import Params

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, MODELS = ROOT / "merging", ROOT / "sample_data" / "models"
EXPERTS = ("fashion", "digits")
DENSITY = 0.1734567
DEEP = 4  # how far containers are looked into
LONG = 100  # characters of text that is not looked into
READS = ("engine/merging_pass.py", "run_merging_pass")


def main() -> int:
    """Print the files of the walks; the exit code is that of the command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["MERGESCOPE_STORE"] = str(folder / "store")
        files = {each: folder / f"{each}.safetensors" for each in ("pretrained", *EXPERTS)}
        for each, file in files.items():
            shutil.copy(MODELS / f"{each}.safetensors", file)
        walks = [
            Walk("density", is_density, ("methods/merges/ties.py", "survey")),
            Walk("path", lambda value: is_path(value, files), READS),
            Walk("named model", lambda value: type(value).__name__ == "ModelRef", READS),
        ]
        words = ["merge", "--pretrained", str(files["pretrained"]), "--no-evaluate"]
        words += ["--merge", f"ties:density={DENSITY}"]
        words += [word for each in EXPERTS for word in ("--expert", f"{each}={files[each]}")]
        code = traced([*words, "--out", str(folder / "out")], walks)
    for walk in walks:
        print(f"{walk.name}: {len(walk.seen)} files")
        for file, functions in walk.seen.items():
            print(f"  {file}: {', '.join(functions)}")
    return code


def is_density(value: Any) -> bool:
    """Whether a value is the density, or short text that holds it."""
    if isinstance(value, float):
        return value == DENSITY
    return isinstance(value, str) and len(value) < LONG and str(DENSITY) in value


def is_path(value: Any, files: Mapping[str, Path]) -> bool:
    """Whether a value is the path of one of these files, or text that ends with it."""
    return isinstance(value, str | Path) and str(value).endswith(tuple(map(str, files.values())))


def holds(value: Any, wanted: Callable[[Any], bool], deep: int = DEEP) -> bool:
    """Whether a value is the wanted one, or a list, a mapping or parameters with it."""
    if isinstance(value, dict | MappingProxyType):
        inside: Iterable[Any] = list(value.values())
    elif isinstance(value, Params):
        inside = value.values().values()
    else:
        inside = list(value) if type(value) in {list, tuple, set, frozenset} else ()
    return wanted(value) or (deep > 0 and any(holds(each, wanted, deep - 1) for each in inside))


class Walk:
    """The files that a value was seen in so far, with the functions that got it."""

    def __init__(self, name: str, wanted: Callable[[Any], bool], end: tuple[str, str]) -> None:
        self.name, self.wanted, self.end, self.over = name, wanted, end, False
        self.seen: dict[str, dict[str, None]] = {}

    def look(self, file: str, frame: FrameType) -> None:
        """Look at the arguments of a call."""
        code = frame.f_code
        if self.over or ((known := self.seen.get(file)) is not None and code.co_name in known):
            return
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        if any(holds(frame.f_locals.get(name), self.wanted) for name in code.co_varnames[:count]):
            self.seen.setdefault(file, {})[code.co_name] = None
        self.over = (file, code.co_name) == self.end


def traced(words: list[str], walks: Sequence[Walk]) -> int:
    """The exit code of a command, whose calls the walks have looked at."""
    from merging.cli.main import main as command

    looking = threading.local()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)) and not getattr(looking, "on", False):
            looking.on = True
            file = str(Path(frame.f_code.co_filename).relative_to(PACKAGE))
            for walk in walks:
                walk.look(file, frame)
            looking.on = False

    with contextlib.redirect_stdout(io.StringIO()):
        threading.settrace(look)
        sys.settrace(look)
        try:
            return command(words)
        finally:
            sys.settrace(None)


if __name__ == "__main__":
    raise SystemExit(main())

"""The desk of Mix as static files, which open from disk and from any host without a request to another one."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path

from app.live import component, desk
from merging.images.benchmarks.benchmark import Benchmark

DATA_SUFFIX = ".data.js"  # of scripts that carry a file as base64
DESK_FILE = "mix.html"  # of the page
FOLDER = Path(component.__file__).parent
PROGRAMS = (  # each after those that it needs
    "random_bytes.js", "merge.js", "accuracies.js", "desk_text.js", "own_picture.js", "vendor/ort.wasm.bundle.min.mjs",
    "vendor/ort-wasm-simd-threaded.wasm.gz", "worker.js", "mix.js",
)  # fmt: skip
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Mix experts in the browser</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="mix.css">
<style>body { margin: 8px 16px; }</style>
<h1>Mix</h1>
<p>How much of each expert do you add, and which layers need it? Drag, and your browser answers at once.</p>
<main id="mix"></main>
<script>window.mixFiles = {};</script>
<script src="static.js"></script>
</html>
"""


def make_desk(benchmark: Benchmark) -> dict[str, bytes]:
    """The files of the page by name; ``DESK_FILE`` opens it. Task vectors are int8. Raises as ``desk.write_desk``."""
    contents: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as written:
        desk.write_desk(Path(written), benchmark, small=True)
        contents |= {path.name: path.read_bytes() for path in sorted(Path(written).iterdir())}
    contents |= {Path(name).name: (FOLDER / name).read_bytes() for name in PROGRAMS}
    sizes = json.dumps({name: len(content) for name, content in contents.items()})
    files = {DESK_FILE: PAGE.replace("= {}", f"= {sizes}").encode()}
    files |= {name: (FOLDER / name).read_bytes() for name in ("mix.css", "static.js")}
    return files | {
        name + DATA_SUFFIX: b'takeMixFile("%s", "%s");' % (name.encode(), base64.b64encode(content))
        for name, content in contents.items()
    }

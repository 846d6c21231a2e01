"""The desk of Mix as static files, which open from disk and from any host without a request to another one."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path

from app.live import component, desk
from merging.images.benchmarks.benchmark import Benchmark

DATA_SUFFIX = ".data.js"  # of scripts that carry a file as base64
DESK_TEXTS = "desk.json" + DATA_SUFFIX
DESK_FILE = "mix.html"  # of the page
FOLDER = Path(component.__file__).parent
PROGRAMS = (  # each after those that it needs
    "random_bytes.js", "merge.js", "accuracies.js", "desk_text.js", "own_picture.js", "vendor/ort.wasm.bundle.min.mjs",
    "vendor/ort-wasm-simd-threaded.wasm.gz", "worker.js", "mix.js",
)  # fmt: skip
FRAME_SCRIPT = '<script type="module" src="mix.js"></script>\n'
HEADING = """<style>body {{ margin: 8px 16px; }}</style>
<h1>Mix</h1>
<p>How much of each expert do you add, and which layers need it? Drag, and your browser answers at once.</p>
<script>window.mixFiles = {sizes};</script>
"""


def make_desk(benchmark: Benchmark) -> dict[str, bytes]:
    """The files of the page by name; ``DESK_FILE`` opens it. Task vectors are int8. Raises as ``desk.write_desk``."""
    contents: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as written:
        desk.write_desk(Path(written), benchmark, small=True)
        contents |= {path.name: path.read_bytes() for path in sorted(Path(written).iterdir())}
    contents |= {Path(name).name: (FOLDER / name).read_bytes() for name in PROGRAMS}
    sizes = json.dumps({name: len(content) for name, content in contents.items()})
    page = (FOLDER / "index.html").read_text("utf-8").replace(FRAME_SCRIPT, HEADING.format(sizes=sizes))
    files = {DESK_FILE: page.replace("</html>", '<script src="static.js"></script>\n</html>').encode()}
    files |= {name: (FOLDER / name).read_bytes() for name in ("mix.css", "static.js")}
    return files | {name + DATA_SUFFIX: write_script(name, content) for name, content in contents.items()}


def write_script(name: str, content: bytes) -> bytes:
    """A script that carries a file."""
    return b'takeMixFile("%s", "%s");' % (name.encode(), base64.b64encode(content))


def unpack_data(script: bytes) -> bytes:
    """The content of a script that carries a file."""
    return base64.b64decode(script.split(b'"')[3])

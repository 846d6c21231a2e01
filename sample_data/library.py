"""Recomputes the library of precomputed runs in sample_data/runs/: every preset, and the references beside them.

The runs are made by the same code as everybody's, on the bundled benchmark with all eight experts. Their weights are
left out (they are remade in a second); recipes, tables and scores stay. A test finds out when they are stale.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from merging import places
from merging.evaluate import summarize
from merging.pipeline import execute, references
from merging.presets import PRESETS
from merging.store import Store
from merging.tasks import Benchmark


def main() -> None:
    """Build the library beside the old one, then swap."""
    benchmark = Benchmark.load()
    with tempfile.TemporaryDirectory(dir=places.BUNDLED) as folder:
        store = Store(Path(folder), libraries=(), dated=False)
        print("Evaluating the pretrained model, the experts and the multi-task model ...", flush=True)
        references(store, benchmark)
        for number, preset in enumerate(PRESETS):
            started = time.monotonic()
            recipe = preset.recipe(benchmark.pretrained, benchmark.experts)
            run = execute(recipe, store, benchmark=benchmark, keep_model=False)
            assert run.scores is not None
            found = summarize(run.scores, run.experts)
            print(
                f"[{number + 1}/{len(PRESETS)}] {preset.title}: in-domain {found.in_domain:.1%}, out-of-domain "
                f"{found.out_of_domain:.1%}, H-score {found.h_score:.1%} ({time.monotonic() - started:.1f} s)",
                flush=True,
            )
        if places.LIBRARY.exists():
            shutil.rmtree(places.LIBRARY)
        (store.root / "runs").rename(places.LIBRARY)
    for path in places.LIBRARY.rglob("*"):  # the store keeps what it writes private; a library is for everybody
        path.chmod(0o755 if path.is_dir() else 0o644)
    places.LIBRARY.chmod(0o755)


if __name__ == "__main__":
    main()

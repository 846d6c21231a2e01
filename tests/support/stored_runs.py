"""Small stored runs, with a stand-in for the model."""

from __future__ import annotations

import json
import math

import pandas as pd

from merging.base.files.atomic import MANIFEST, seal
from merging.base.files.records import write_json
from merging.base.files.tables import write_table
from merging.images.benchmarks.answers import ANSWERS
from merging.study.runs.run import FACTS
from merging.study.runs.run_facts import run_facts

ID, OTHER = "0123456789ab", "ba9876543210"


TABLE = pd.DataFrame(
    {
        "expert": ["1", "NA", "a, \"b\"\n'c'", ""],
        "value": [0.1, math.nan, math.inf, 1 / 3],
        "count": [1, 2, 3, 2**60],
        "kept": [True, False, True, False],
    }
)


def fill(folder, run_id=ID, title="A run", **changes):
    """What a run consists of, with a small stand-in for the model."""
    schema = write_table(folder, "saliency", TABLE)
    (folder / "recipe.yaml").write_text("merge: ties\nexperts: {a: a.safetensors}\n")
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 16)
    said = run_facts(
        run_id=run_id, is_dated=True, device="CPU", kind="merge", title=title, seconds={"merging": 1.0}, warnings=[],
        seed=None, chain=["ties"], experts=["a"], inputs={}, benchmark=None, work={},
        sizes={"files": 4096, "header": 0, "dead": 0},
        models={"merged": "model.safetensors"}, tables={"saliency": schema},
    )  # fmt: skip
    write_json(folder / FACTS, said | changes)


def write_run(store, run_id=ID, **changes):
    with store.write_run(run_id) as folder:
        fill(folder, run_id, **changes)
    return store.get_run(run_id)


def remove_answers(folder):
    """Leave the run in this folder without answers to each image, as of scores from another program."""
    facts = json.loads((folder / FACTS).read_bytes())
    facts["tables"].pop(ANSWERS)
    for path in (folder / "tables").glob(f"{ANSWERS}.*"):
        path.unlink()
    write_json(folder / FACTS, facts)
    (folder / MANIFEST).unlink()
    seal(folder)

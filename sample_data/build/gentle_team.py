"""The second bundled benchmark: a team of eight whose fine-tuning was held near the pretrained weights.

    python -m sample_data.build.gentle_team --store FOLDER

Writes ``gentle/`` into sample_data/ with the setting that gentle_study chose: the pretrained model and the images are
those of the bundled benchmark, and experts are stored as whole-number changes. FOLDER has the training images of all
eight tasks in ``images`` (``make.py --stage images`` draws them), and experts in float32 that are there are taken.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors import safe_open

from merging.base.files.records import write_json
from merging.base.settings import BUNDLED_FOLDER, BUNDLED_TEAMS
from merging.images.benchmarks.benchmark import BUNDLED_IMAGES
from merging.models.formats.integer_changes import write_changes
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.referenced_model import write_reference
from merging.models.model_references import BUNDLED_PREFIX, PRETRAINED
from sample_data.build import export, finetune
from sample_data.build.gentle_tuning import SETTINGS, prepare_experts

TEAM, SETTING = "gentle", "pull150"
LEVELS = 15  # of a change, above and below zero: all 127 would take 21 MB, and these take 13


def write_team(experts: Path, out: Path) -> None:
    """Write the benchmark's folder from a folder of experts in float32."""
    (out / "models").mkdir(parents=True, exist_ok=True)
    tasks = json.loads((BUNDLED_FOLDER / "tasks.json").read_text("utf-8"))
    text = json.dumps({"images": BUNDLED_IMAGES, **tasks}, indent=1, ensure_ascii=False)
    (out / "tasks.json").write_text(text + "\n", encoding="utf-8")
    shutil.copyfile(BUNDLED_FOLDER / "heads.safetensors", out / "heads.safetensors")
    pretrained = open_checkpoint(f"{BUNDLED_PREFIX}{PRETRAINED}")
    reference = out / f"models/{PRETRAINED}.json"
    write_reference(reference, Path(f"{BUNDLED_PREFIX}{PRETRAINED}"), pretrained.metadata)
    setting = next(each for each in SETTINGS if each.key == SETTING)
    for name in finetune.EXPERTS:
        path = experts / f"{name}.safetensors"
        with safe_open(path, "pt") as file:
            seconds = file.metadata()["seconds"]
        about = {
            "architecture": pretrained.metadata["architecture"], "role": "expert", "task": name,
            "training": json.dumps(finetune.describe(name) | {"decay_toward_pretrained": setting.pull}),
            "seed": str(setting.seed), "seconds": seconds,
        }  # fmt: skip
        write_changes(out / f"models/{name}.npz", pretrained, open_checkpoint(path), about, LEVELS)
    content = {
        "version": 1,
        "files": export.hash_files(out, ("tasks.json", "heads.safetensors", "models/*")),
        "made_by": "python -m sample_data.build.gentle_team",
        "setting": vars(setting),
    }
    write_json(out / "manifest.json", content)


def main() -> None:
    """Train the experts that are missing, and write the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="folder with training images, and for experts")
    store = parser.parse_args().store
    torch.set_num_threads(1)
    setting = next(each for each in SETTINGS if each.key == SETTING)
    folder = prepare_experts(setting, store, tuple(finetune.EXPERTS))
    write_team(folder / "models", BUNDLED_TEAMS[TEAM])


if __name__ == "__main__":
    main()

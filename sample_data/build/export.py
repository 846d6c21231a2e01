"""Writes what the repository carries: models, heads, images, task list, notices and the manifest over all of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from sample_data.build import corpus, finetune, fonts, pretrain
from sample_data.build.network import ARCHITECTURE, MEAN, STD, Tower
from sample_data.build.tasks import TASKS, Task

EXEMPLARS, HALF, DATA_SEED = 96, 240, 0
PACKAGES = [f"fonts-{name}" for split in fonts.SPLITS.values() for name in split]
PACKAGES += ["fonts-noto-color-emoji", "iso-flags-png-320x240", "dataset-fashion-mnist"]
GENERATED = ("tasks.json", "heads.safetensors", "NOTICE", "models/*.safetensors", "data/*.npz")


def write_model(path: Path, tower: Tower, role: str, task: str, training: dict[str, object], seed: int) -> None:
    """One tower in half precision under open_clip's names."""
    tensors = {f"visual.{name}": value.detach().half().contiguous() for name, value in tower.state_dict().items()}
    about = {
        "architecture": json.dumps(ARCHITECTURE),
        "role": role,
        "task": task,
        "training": json.dumps(training),
        "seed": str(seed),
    }
    save_file(tensors, path, metadata=about)
    path.chmod(0o644)


def write_models(images: Path, work: Path, out: Path, seed: int) -> None:
    """The pretrained tower, whichever experts and multi-task model the work folder has, and all heads."""
    (out / "models").mkdir(parents=True, exist_ok=True)
    tower, captions = pretrain.load(images, work)
    write_model(out / "models/pretrained.safetensors", tower, "pretrained", "", pretrain.describe(), seed)
    heads = {task.key: captions.head(task).detach().float().contiguous() for task in TASKS}
    save_file({**heads, "logit_scale": captions.scale.detach().float().reshape(())}, out / "heads.safetensors")
    (out / "heads.safetensors").chmod(0o644)
    for name in [*finetune.EXPERTS, finetune.MULTITASK]:
        saved = work / f"{name}.pt"
        if saved.exists():
            tower.load_state_dict(torch.load(saved, weights_only=True))
            role = "multitask" if name == finetune.MULTITASK else "expert"
            task = "" if role == "multitask" else name
            write_model(out / f"models/{name}.safetensors", tower, role, task, finetune.describe(name), seed)


def copy_images(source: Path, out: Path) -> None:
    """The images and tasks of another benchmark, so that models of another seed answer the same images."""
    shutil.copytree(source / "data", out / "data", dirs_exist_ok=True)
    shutil.copyfile(source / "tasks.json", out / "tasks.json")


def write_data(images: Path, out: Path) -> None:
    """Per task: exemplars from the training images, and the test images: a choosing half, the others for reporting."""
    (out / "data").mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        pixels, labels = corpus.load(images, f"{task.key}_test")
        arrays: dict[str, np.ndarray] = {}
        if task.in_domain:
            train_pixels, train_labels = corpus.load(images, f"{task.key}_train")
            arrays["exemplar_images"] = np.array(train_pixels[:EXEMPLARS])
            arrays["exemplar_labels"] = train_labels[:EXEMPLARS]
        more_pixels, more_labels = corpus.load(images, f"{task.key}_more")
        arrays["choosing_images"], arrays["choosing_labels"] = np.array(pixels[:HALF]), labels[:HALF]
        arrays["reporting_images"] = np.concatenate([pixels[HALF : 2 * HALF], more_pixels])
        arrays["reporting_labels"] = np.concatenate([labels[HALF : 2 * HALF], more_labels])
        np.savez_compressed(out / f"data/{task.key}.npz", **arrays)


def counts(task: Task, out: Path) -> dict[str, int]:
    """How many images each use of the task has; the first three are not in the repository."""
    with np.load(out / f"data/{task.key}.npz") as data:
        reporting = len(data["reporting_labels"])
    web = corpus.WEB_IN_DOMAIN if task.in_domain else corpus.WEB_OUT_OF_DOMAIN
    used = {
        "pretraining": web,
        "training": task.train,
        "validation": corpus.VALIDATION,
        "exemplar": EXEMPLARS if task.in_domain else 0,
        "choosing": HALF,
        "reporting": reporting,
    }
    return used


def write_task_list(out: Path) -> None:
    """tasks.json: what the program needs to know of every data set, in display order."""
    tasks = [
        {
            "key": task.key,
            "title": task.title,
            "group": task.group,
            "class_names": list(task.class_names),
            "descriptions": task.descriptions,
            "source": task.source,
            "license": task.license,
            "counts": counts(task, out),
        }
        for task in TASKS
    ]
    preprocess = {"image_size": ARCHITECTURE["vision_cfg"]["image_size"], "mean": list(MEAN), "std": list(STD)}
    text = json.dumps({"preprocess": preprocess, "tasks": tasks}, indent=1, ensure_ascii=False)
    (out / "tasks.json").write_text(text + "\n", encoding="utf-8")


def package_versions() -> dict[str, str]:
    """Installed version of every Debian package that an image came from, and of the Python packages that drew it."""
    from importlib.metadata import version

    listing = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES]
    lines = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\n")
    found = dict(line.split(" ", 1) for line in lines if line)
    return dict(sorted(found.items())) | {name: version(name) for name in ("torch", "numpy", "pillow", "scikit-learn")}


def list_altered(out: Path) -> list[str]:
    """Files of the manifest that are missing or no longer what it says."""
    files = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["files"]
    return [
        name
        for name, entry in files.items()
        if not (out / name).is_file() or hashlib.sha256((out / name).read_bytes()).hexdigest() != entry["sha256"]
    ]


def hash_files(out: Path, patterns: Sequence[str]) -> dict[str, dict[str, str | int]]:
    """{name: sha-256 and size in bytes} of the files of a benchmark that match these patterns."""
    paths = sorted(path for pattern in patterns for path in out.glob(pattern))
    return {
        path.relative_to(out).as_posix(): {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "bytes": path.stat().st_size,
        }
        for path in paths
    }


def write_manifest(out: Path) -> None:
    """manifest.json: size and sha-256 of every generated file, and how it came to be."""
    content = {
        "version": 1,
        "files": hash_files(out, GENERATED),
        "counts": {task.key: counts(task, out) for task in TASKS},
        "made_by": "python sample_data/make.py",
        "seeds": {"data": DATA_SEED, "pretraining": pretrain.SEED, "fine_tuning": finetune.SEED},
        "steps": {"pretraining": pretrain.STEPS}
        | {name: finetune.setting_of(name).steps for name in [*finetune.EXPERTS, finetune.MULTITASK]},
        "packages": package_versions(),
    }
    (out / "manifest.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

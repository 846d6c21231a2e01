"""Settings from the environment: folders of benchmarks, runs and models, and the workers that compute."""

from __future__ import annotations

import os
from pathlib import Path

from merging.base.errors import StoreError
from merging.base.text import printable

BUNDLED_FOLDER = Path(__file__).resolve().parents[2] / "sample_data"
LIBRARY_FOLDER = BUNDLED_FOLDER / "runs"
# The bundled benchmarks by their teams of experts, who share images, heads and the pretrained model: the first team,
# and one whose task vectors are smaller, because its fine-tuning was held near the pretrained weights.
BUNDLED_TEAMS = {"": BUNDLED_FOLDER, "gentle": BUNDLED_FOLDER / "gentle"}
STORE_VARIABLE = "MERGESCOPE_STORE"
WORKERS_VARIABLE = "MERGESCOPE_WORKERS"  # empty (this process), 4 (processes), gpus, an address, module:function
CERTIFICATES_VARIABLE = "MERGESCOPE_CERTIFICATES"  # the folder of the certificates for TLS connections to workers
EVALUATOR_VARIABLE = "MERGESCOPE_EVALUATOR"  # the program that measures exported models; only from the environment
JOBS_VARIABLE = "MERGESCOPE_JOBS"  # how many jobs run at a time if they share workers
DEFAULT_JOBS, MAX_JOBS = 4, 64
PACKS_VARIABLE = "MERGESCOPE_PACKS"  # packs that a server opens: files, or folders of such files
HUB_VARIABLE = "MERGESCOPE_HUB"  # "on"; "cached": nothing is downloaded; "off": no cache either


def benchmark_folder() -> Path:
    """The folder of the default benchmark: $MERGESCOPE_BENCHMARK, else the bundled one."""
    folder = os.environ.get("MERGESCOPE_BENCHMARK")
    return Path(folder).resolve() if folder else BUNDLED_FOLDER


def check_benchmark() -> None:
    """Raises StoreError if the folder of the default benchmark has no benchmark."""
    if not ((folder := benchmark_folder()) / "tasks.json").is_file():
        raise StoreError(f"{folder} has no tasks.json. Set MERGESCOPE_BENCHMARK to a benchmark's folder, or unset it.")


def store_root() -> Path:
    """The folder of this user's runs: $MERGESCOPE_STORE, else a folder in the user's cache directory.

    Raises:
        StoreError: no variable is set, and the user has no home folder.
    """
    for variable, subfolder in ((STORE_VARIABLE, ""), ("XDG_CACHE_HOME", "mergescope")):
        if folder := os.environ.get(variable):
            return Path(folder) / subfolder
    try:
        return Path.home() / ".cache" / "mergescope"
    except RuntimeError:  # neither $HOME nor an entry among the system's users
        raise StoreError(
            "There is no home folder to store runs in. Set MERGESCOPE_STORE to a folder that can be written to."
        ) from None


def workers_setting() -> str:
    """The text of $MERGESCOPE_WORKERS that names the workers, as ``merging.tasks.workers.pools`` reads it."""
    return os.environ.get(WORKERS_VARIABLE, "").strip()


def max_running_jobs() -> int:
    """How many jobs a server runs at a time: one, or $MERGESCOPE_JOBS (4) if jobs share the workers of a scheduler.

    Each job starts worker processes of this machine anew, so one job uses them all. Whether jobs share the
    pool of a user's function is unknown, so one job runs unless the variable is set.

    Raises:
        StoreError: the variable is not a valid number of jobs.
    """
    spec, setting = workers_setting(), os.environ.get(JOBS_VARIABLE, "").strip()
    if setting and not (setting.isdecimal() and 1 <= int(setting) <= MAX_JOBS):
        raise StoreError(
            f"{JOBS_VARIABLE} says how many jobs run at a time, 1 to {MAX_JOBS}; got {printable(setting, 40)!r}. Set "
            "another number, or unset it."
        )
    # An address ("://") or a scheduler's file (".json") names shared workers, another ":" a user's function.
    if ":" not in spec and not spec.endswith(".json"):
        return 1
    shared_by_jobs = "://" in spec or spec.endswith(".json")
    return int(setting or (DEFAULT_JOBS if shared_by_jobs else 1))


def store_arguments() -> list[str]:
    """The command-line option that selects this program's store, as words; empty for the default store."""
    return ["--store", str(store_root().absolute())] if os.environ.get(STORE_VARIABLE) else []


def models_folders() -> dict[str, Path]:
    """The folders of $MERGESCOPE_MODELS by their names in references: the last path component, numbered if repeated."""
    folders: dict[str, Path] = {}
    for text in os.environ.get("MERGESCOPE_MODELS", "").split(os.pathsep):
        if not text.strip():
            continue
        path = Path(text).expanduser().resolve()
        stem, number = path.name or "models", 1
        name = stem
        while name in folders and folders[name] != path:
            number += 1
            name = f"{stem}-{number}"
        folders[name] = path
    return folders

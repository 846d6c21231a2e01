"""Rebuilds the bundled benchmark: images, pretraining, eight experts, one multi-task model, files, acceptance table.

Everything comes from fixed seeds and fixed numbers of steps; no clock enters. Two processor cores need about an hour
(pretraining twenty minutes when nothing else runs). A stopped run goes on where it stopped.

    python sample_data/make.py                      all stages
    python sample_data/make.py --stage check        one of: images, pretrain, finetune, export, check
    python sample_data/make.py --seed 1 --work FOLDER --out BENCHMARK
                                                    the pretrained model and eight experts of another seed, with the
                                                    same images; sample_data/build/seeds.py compares them
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads of one process are slower than two processes
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.multiprocessing as processes

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from sample_data.build import check, corpus, export, finetune, notices, pretrain  # noqa: E402

STAGES = ("images", "pretrain", "finetune", "export", "check")
STARTED = time.monotonic()


def print_progress(text: str) -> None:
    """A line of progress with the minutes since the start."""
    print(f"[{(time.monotonic() - STARTED) / 60:5.1f} min] {text}", flush=True)


def count_workers() -> int:
    return 1 if torch.cuda.is_available() else 2


def draw_images(work: Path) -> None:
    """Draws all images, unless they are there."""
    if not (work / "images/broad_web_labels.npy").exists():
        corpus.draw_all(work / "images", export.DATA_SEED, print_progress)


def _pretrain_worker(rank: int, workers: int, work: Path, seed: int) -> None:
    pretrain.run_pretraining(rank, workers, work / "images", work, print_progress, seed)


def pretrain_tower(work: Path, seed: int) -> None:
    """Pretrains in as many processes as there are cores to use, or on the GPU."""
    (work / "meeting").unlink(missing_ok=True)
    processes.spawn(_pretrain_worker, (count_workers(), work, seed), nprocs=count_workers())


def _tune_worker(rank: int, lists: list[list[str]], work: Path, seed: int) -> None:
    torch.set_num_threads(1)
    for name in lists[rank]:
        finetune.tune_and_save(name, work / "images", work, print_progress, seed)


def fine_tune(work: Path, seed: int) -> None:
    """The multi-task model in one process, the eight experts, which cost as much together, in the other.

    Another seed has no multi-task model.
    """
    experts = list(finetune.EXPERTS)
    lists = [[finetune.MULTITASK], experts] if seed == finetune.SEED else [experts[::2], experts[1::2]]
    if count_workers() == 1:
        lists = [[*lists[0], *lists[1]]]
    processes.spawn(_tune_worker, (lists, work, seed), nprocs=len(lists))


def export_files(work: Path, out: Path, seed: int) -> None:
    """Writes the files of the repository, or the models of another seed beside copies of the repository's images."""
    export.write_models(work / "images", work, out, seed)
    if seed != pretrain.SEED:
        export.copy_images(HERE, out)
        return
    export.write_data(work / "images", out)
    export.write_task_list(out)
    notices.write(out, export.package_versions())
    export.write_manifest(out)
    total = sum(path.stat().st_size for pattern in export.GENERATED for path in out.glob(pattern))
    print_progress(f"wrote {out}: {total / 1e6:.1f} MB")


def main() -> int:
    """Runs the stages asked for; the exit code is 0 when every measured floor holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=STAGES, action="append", help="run only this stage (may be repeated)")
    parser.add_argument(
        "--work",
        type=Path,
        help="folder for images and checkpoints between stages; by default a temporary one of the seed",
    )
    parser.add_argument("--seed", type=int, default=pretrain.SEED, help="seed of pretraining and fine-tuning")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write the benchmark to")
    arguments = parser.parse_args()
    stages = arguments.stage or STAGES
    if arguments.seed != pretrain.SEED:
        if "check" in (arguments.stage or ()):
            parser.error(f"The floors of --stage check are for seed {pretrain.SEED}; another seed has no check.")
        if arguments.out.resolve().is_relative_to(HERE):
            parser.error(
                "Name a folder outside sample_data/ with --out, because the repository has the models of one seed."
            )
        stages = [stage for stage in stages if stage != "check"]
    if arguments.work is None:
        arguments.work = Path(tempfile.gettempdir()) / f"mergescope-sample-data-seed-{arguments.seed}"
    arguments.work.mkdir(parents=True, exist_ok=True)
    passed = True
    for stage in stages:
        print_progress(f"stage {stage}")
        if stage == "images":
            draw_images(arguments.work)
        elif stage == "pretrain":
            pretrain_tower(arguments.work, arguments.seed)
        elif stage == "finetune":
            fine_tune(arguments.work, arguments.seed)
        elif stage == "export":
            export_files(arguments.work, arguments.out, arguments.seed)
        else:
            passed = check.check_floors(arguments.out, print_progress)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())

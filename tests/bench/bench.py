"""Times merges of synthetic checkpoints (K = 8) as whole processes, as ratios to reading the files once.

    make bench                        # three rounds; the checkpoints (3.2 GB) go to a temporary folder
    python tests/bench/bench.py --keep DIR  # keep and reuse the checkpoints
    python tests/bench/bench.py --only ties # the floor and the cases with that word in their name
    python tests/bench/bench.py --model ViT-L/14 --only lot   # 11 GB of checkpoints; ViT-B/32 unless told
    python tests/bench/bench.py --before DIR --only drm       # in turns with the code of another checkout
    python tests/bench/bench.py --data      # LOT and CAT instead, split into passes and linear algebra; once each
    python tests/bench/bench.py --data --only bundled --device cpu
    python tests/bench/bench.py --commands  # only the second table: whole commands, beside other programs

Every registered method that needs only checkpoints has a row, an edit before task arithmetic, and LOT, RegMean and
CAT, which pass 16 random images a task through every expert. Cases of over a minute are timed once.

The floor is a process that imports what a merge imports and reads all nine files once, piece by piece. Every round
times the floor and every case one after another; the table gives medians, the peak of anonymous memory, and how busy
the machine was with other work (a ratio taken on a busy machine is not worth much). DRM has a floor of its own beside
it: the float64 Gram matrix of each linear map's task vectors, side by side, and its eigenvectors.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import bench_data
import whole_commands

import merging
from merging.base.devices import choose_device
from merging.methods.method import Needs

ROOT = Path(__file__).resolve().parents[2]
EXPERTS = 8
FLOOR = "read all files once"
FACTORS = "float64 Gram, eigenvectors"  # the floor of DRM: of each linear map's matrices side by side
LONG = 60.0  # seconds; cases that take longer are timed once
IMAGES = 16  # exemplars per task of the case that needs some
Case = tuple[str, dict[str, Any], list[str], int]  # merge, its parameters, edits before it, exemplars per task
COMBINATIONS: dict[str, Case] = {
    "dare → ties": ("ties", {}, ["dare"], 0),
    "lwptv → ties": ("ties", {}, ["lwptv"], 0),
    "lwptv → pcb": ("pcb", {}, ["lwptv"], 0),
    f"lot ({IMAGES} exemplars)": ("lot", {}, [], IMAGES),
    f"regmean ({IMAGES} exemplars)": ("regmean", {}, [], IMAGES),
    f"cat ({IMAGES} exemplars)": ("task_arithmetic", {}, ["cat"], IMAGES),
}
MODELS = {  # what ``tower`` takes
    "ViT-B/32": {"width": 768, "layers": 12, "patch": 32, "tokens": 50, "out": 512},
    "ViT-L/14": {"width": 1024, "layers": 24, "patch": 14, "tokens": 257, "out": 768},
    # A sample of layers: one block of ViT-B/32, with little around it.
    "one block": {"width": 768, "layers": 1, "patch": 8, "tokens": 50, "out": 64},
}
PARAMS = {"wudi": {"steps": 3}}  # of 300: a hundredth of the steps says enough
CHILD = """
import json, sys, threading, time
started = time.monotonic()
sys.path.insert(0, sys.argv[1])
import merging, merging.engine, pandas
case, device, files = json.loads(sys.argv[2]), sys.argv[3], sys.argv[4:]
peak = [0]
def watch():
    while True:
        with open("/proc/self/smaps_rollup") as rollup:
            peak[0] = max(peak[0], *(int(line.split()[1]) for line in rollup if line.startswith("Anonymous")))
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
imported = time.monotonic()
if case is None:
    from merging.engine.run_inputs import BLOCK_CPU
    from merging.models.formats.model_sources import open_checkpoint
    for file in files:
        checkpoint = open_checkpoint(file)
        for name, info in checkpoint.infos.items():
            for start in range(0, info.numel, BLOCK_CPU):
                checkpoint.read_flat(name, start, min(start + BLOCK_CPU, info.numel)).sum()
elif case == "factors":
    import torch
    from merging.base.numerics.eigen import decompose_symmetric
    from merging.base.numerics.linear_algebra import lower_gram
    from merging.base.threads import run_in_threads
    from merging.models.families import LINEAR_MAPS
    from merging.models.formats.model_sources import open_checkpoint
    model = open_checkpoint(files[0])
    shapes = [model.infos[parameter.name].shape for parameter in model.parameters if parameter.role in LINEAR_MAPS]
    def factorize(shape):
        decompose_symmetric(lower_gram(torch.randn(len(files) - 1, *shape)))
    with run_in_threads([lambda shape=shape: factorize(shape) for shape in shapes]) as results:
        list(results)
else:
    import torch
    from merging.models.architecture import Architecture
    from merging.models.formats.model_sources import open_checkpoint
    experts = {f"expert {k}": file for k, file in enumerate(files[1:])}
    side = Architecture.from_checkpoint(open_checkpoint(files[0])).image_size
    images = {name: torch.randn(case[3], 3, side, side) for name in experts} if case[3] else None
    merging.merge(files[0], experts, case[0], case[1], case[2], exemplars=images, device=device)
work = time.monotonic() - imported
time.sleep(0.03)
print(json.dumps({"import": imported - started, "work": work, "anonymous": peak[0] * 1024}))
"""


def tower(width: int, layers: int, patch: int, tokens: int, out: int):
    """A visual tower at random initialization: {name: tensor}."""
    import torch

    state = {
        "visual.class_embedding": torch.randn(width) * 0.02,
        "visual.positional_embedding": torch.randn(tokens, width) * 0.01,
        "visual.proj": torch.randn(width, out) * width**-0.5,
        "visual.conv1.weight": torch.randn(width, 3, patch, patch) * 0.02,
    }
    norms = ["visual.ln_pre", "visual.ln_post"]
    for block in range(layers):
        at = f"visual.transformer.resblocks.{block}."
        norms += [at + "ln_1", at + "ln_2"]
        linear = {"attn.in_proj_": (3, 1), "attn.out_proj.": (1, 1), "mlp.c_fc.": (4, 1), "mlp.c_proj.": (1, 4)}
        for part, (rows, columns) in linear.items():
            state[at + part + "weight"] = torch.randn(rows * width, columns * width) * 0.02
            state[at + part + "bias"] = torch.zeros(rows * width)
    for norm in norms:
        state |= {norm + ".weight": torch.ones(width), norm + ".bias": torch.zeros(width)}
    return state


def write_checkpoints(folder: Path, model: str) -> list[Path]:
    """Pretrained and experts: the tower plus noise of about one percent of its size."""
    import torch

    from merging.models.formats.safetensors import save

    torch.manual_seed(0)
    files = [folder / "pretrained.safetensors", *(folder / f"expert{k}.safetensors" for k in range(EXPERTS))]
    if not all(file.is_file() for file in files):
        base = tower(**MODELS[model])
        for k, file in enumerate(files):
            moved = {n: v + torch.randn_like(v) * 2e-4 * (1 + k / EXPERTS) for n, v in base.items()} if k else base
            save(file, moved)
    return files


def cases(only: str) -> dict[str, Case]:
    """{name: case} of every method that needs no data, and of combinations that papers report."""
    found: dict[str, Case] = {}
    for method in (m for m in merging.list_methods() if m.needs is Needs.NOTHING):
        params = PARAMS.get(method.key, {})
        said = "".join(f" ({name} {value})" for name, value in params.items())
        if method.role == "merge":
            found[method.key + said] = (method.key, params, [], 0)
        elif method.role == "edit":
            found[f"{method.key} → task_arithmetic"] = ("task_arithmetic", {}, [method.key], 0)
    return {name: case for name, case in (found | COMBINATIONS).items() if only in name}


def run_once(case: Case | str | None, files: list[Path], device: str = "cpu", root: Path = ROOT) -> dict[str, float]:
    """One process: seconds as a whole and in parts, peak anonymous bytes, share of the machine that others used."""
    machine, own, started = psutil.cpu_times(), _children_seconds(), time.monotonic()
    command = [sys.executable, "-c", CHILD, str(root), json.dumps(case), device, *map(str, files)]
    child = subprocess.run(command, check=True, capture_output=True, text=True)
    wall = time.monotonic() - started
    now = psutil.cpu_times()
    busy = sum(getattr(now, kind) - getattr(machine, kind) for kind in ("user", "nice", "system"))
    processors = _children_seconds() - own
    others = max(0.0, busy - processors) / (wall * (psutil.cpu_count() or 1))
    return json.loads(child.stdout.splitlines()[-1]) | {"wall": wall, "cpu": processors, "others": others}


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(found: dict[str, list[dict[str, float]]]) -> None:
    """Medians per case, and ratios to the floor's medians: of whole processes, and of the work after the imports."""
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in found.items()
    }
    floor = medians[FLOOR]
    titles = f"{'case':30} {'wall s':>7} {'ratio':>6} {'work s':>7} {'ratio':>6} {'CPU s':>7} {'anonymous GiB':>14}"
    print(f"{titles} {'others':>7}")
    for name, row in medians.items():
        print(
            f"{name:30} {row['wall']:7.2f} {row['wall'] / floor['wall']:6.2f} {row['work']:7.2f} "
            f"{row['work'] / floor['work']:6.2f} {row['cpu']:7.2f} {row['anonymous'] / 2**30:14.2f} "
            f"{row['others']:7.0%}"
        )


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="folder in which the checkpoints stay")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default=bench_data.SYNTHETIC, choices=MODELS)
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--data", action="store_true", help="methods that look at data, on the benchmark and ViT-B/32")
    parser.add_argument("--commands", action="store_true", help="only whole commands, as users type them")
    parser.add_argument("--before", type=Path, help="a checkout whose code is timed in turns with this one's")
    parser.add_argument("--device", default="cpu", help="on which merges compute")
    arguments = parser.parse_args()
    choose_device(arguments.device)  # or refuse, before gigabytes are written
    looking = bench_data.cases(arguments.only).values() if arguments.data else []
    synthetic = not arguments.data or any(model == bench_data.SYNTHETIC for model, *_ in looking)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if synthetic:
            print(f"Writing nine synthetic {arguments.model} checkpoints to {folder.name}/ ...", flush=True)
        files = write_checkpoints(folder, arguments.model) if synthetic else []
        if arguments.data:
            bench_data.report(files, arguments.device, arguments.only)
            return
        run_once(None, files)  # warms the file cache
        if arguments.commands:
            whole_commands.report(files, arguments.only, arguments.rounds, arguments.device)
            return
        timed: dict[str, tuple[Case | str | None, Path]] = {FLOOR: (None, ROOT)}
        for name, case in cases(arguments.only).items():
            if name == "drm":
                timed[FACTORS] = "factors", ROOT
            if arguments.before:
                timed[f"{name}, before"] = case, arguments.before.resolve()
            timed[name] = case, ROOT
        found: dict[str, list[dict[str, float]]] = {name: [] for name in timed}
        for number in range(arguments.rounds):
            for name, (case, root) in timed.items():
                if number == 0 or found[name][0]["wall"] < LONG:
                    print(f"round {number + 1} of {arguments.rounds}: {name} ...", flush=True)
                    found[name].append(run_once(case, files, arguments.device, root))
        report(found)
        if not arguments.before:
            whole_commands.report(files, arguments.only, arguments.rounds, arguments.device)


if __name__ == "__main__":
    main()

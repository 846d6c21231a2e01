"""The second table of ``make bench``: whole commands with an empty store, as users type them, beside other programs.

Every round times the floor (a process that imports torch and reads all files once), ours and, where it is installed
(see peers/README.md), mergekit's, one after another. The table gives medians: seconds of the wall and of all
processors, ratios of both to the floor's, and the peak of anonymous memory. A merge that makes one model per expert has
a floor of its own, which also writes as many models of that size to the disk.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "tests" / "bench" / "peers"
MERGEKIT = PEERS / "mergekit" / "bin" / "mergekit-pytorch"
FLOOR, WRITING = "torch, and reading once", "the same, and writing a model per expert"
READ = """
import os, sys, torch
torch.set_num_threads(1)
values = torch.empty(1 << 18)
buffer = memoryview(values.numpy()).cast("B")
written, *files = sys.argv[1:]
for number, file in enumerate(files):
    descriptor = os.open(file, os.O_RDONLY)
    if written and number:
        copy = os.open(f"{written}/{number}", os.O_WRONLY | os.O_CREAT)
    while count := os.readv(descriptor, [buffer]):
        values.sum()
        if written and number:
            os.write(copy, buffer[:count])
    if written and number:
        os.fsync(copy)
"""


@dataclass(frozen=True)
class WholeCommand:
    """Words of ``python -m merging merge``, and what mergekit calls the same (None: it has none)."""

    words: tuple[str, ...]
    mergekit: Mapping[str, object] | None = None
    floor: str = FLOOR


def _peer(method: str, **parameters: object) -> dict[str, object]:
    return {"merge_method": method, "parameters": parameters}


COMMANDS: Mapping[str, WholeCommand] = {
    "averaging": WholeCommand(("--merge", "weight_averaging"), _peer("linear", weight=0.125)),
    "task arithmetic": WholeCommand(("--merge", "task_arithmetic"), _peer("task_arithmetic", weight=0.3)),
    "lwptv → task arithmetic": WholeCommand(("--edit", "lwptv", "--merge", "task_arithmetic")),
    "ties": WholeCommand(("--merge", "ties"), _peer("ties", weight=0.3, density=0.2, normalize=False)),
    "dare → ties": WholeCommand(("--edit", "dare", "--merge", "ties"), _peer("dare_ties", weight=0.3, density=0.5)),
    "model stock": WholeCommand(("--merge", "model_stock"), _peer("model_stock")),
    "pcb": WholeCommand(("--merge", "pcb")),
    "emr": WholeCommand(("--merge", "emr"), floor=WRITING),
}
AVERAGES = {"linear"}  # methods of mergekit that take no base model


def timed(command: Sequence[str], folder: Path) -> dict[str, float]:
    """One process: seconds of the wall and of the processors, and its peak of anonymous bytes."""
    environment = os.environ | {"MERGESCOPE_STORE": str(folder / "store"), "HF_HUB_OFFLINE": "1"}
    environment["OMP_WAIT_POLICY"] = "PASSIVE"
    started = time.monotonic()
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
    peak = [0]
    watching = threading.Thread(target=_watch, args=(process.pid, peak), daemon=True)
    watching.start()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - started
    if process.returncode:
        raise SystemExit(f"{command[0]} failed:\n{(folder / 'output').read_text('utf-8', 'replace')[-2000:]}")
    return {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "anonymous": peak[0] * 1024}


def _watch(process: int, peak: list[int]) -> None:
    """Keep the largest number of anonymous kilobytes of a process while it runs."""
    while True:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            return
        peak[0] = max(peak[0], *(int(line.split()[1]) for line in lines if line.startswith("Anonymous")), 0)
        time.sleep(0.02)


def floor_words(files: Sequence[Path], folder: Path, floor: str = FLOOR) -> list[str]:
    """The command that only reads, and perhaps writes as much as a merge with one model per expert."""
    return [sys.executable, "-c", READ, str(folder) if floor == WRITING else "", *map(str, files)]


def our_words(case: WholeCommand, files: Sequence[Path], folder: Path, device: str) -> list[str]:
    """Our command."""
    experts = [word for k, file in enumerate(files[1:]) for word in ("--expert", f"expert{k}={file}")]
    place = ["--out", str(folder / "out"), "--no-evaluate", "--device", device]
    return [sys.executable, "-m", "merging", "merge", "--pretrained", str(files[0]), *experts, *place, *case.words]


def mergekit_words(case: WholeCommand, files: Sequence[Path], folder: Path) -> list[str]:
    """mergekit's command for files of any architecture; its configuration is JSON, which is YAML."""
    assert case.mergekit is not None
    config: dict[str, object] = {"models": [{"model": str(file)} for file in files[1:]], "dtype": "float32"}
    config |= case.mergekit
    if case.mergekit["merge_method"] not in AVERAGES:
        config["base_model"] = str(files[0])
    (folder / "config.yml").write_text(json.dumps(config), "utf-8")
    return [str(MERGEKIT), str(folder / "config.yml"), str(folder / "out")]


def report(files: Sequence[Path], only: str, rounds: int, device: str) -> None:
    """Run the rounds and print the table; ours computes on the device, the others on the CPU."""
    chosen = {name: case for name, case in COMMANDS.items() if only in name}
    runs: dict[tuple[str, str], Callable[[Path], list[str]]] = {}
    for floor in dict.fromkeys((FLOOR, *(case.floor for case in chosen.values()))):
        runs[floor, ""] = lambda folder, floor=floor: floor_words(files, folder, floor)
    for name, case in chosen.items():
        runs[name, "ours"] = lambda folder, case=case: our_words(case, files, folder, device)
        if case.mergekit is not None and MERGEKIT.exists():
            runs[name, "mergekit"] = lambda folder, case=case: mergekit_words(case, files, folder)
    results: dict[tuple[str, str], list[dict[str, float]]] = {key: [] for key in runs}
    for number in range(rounds):
        for key, words in runs.items():
            print(f"round {number + 1} of {rounds}: {' '.join(key)} ...", flush=True)
            with tempfile.TemporaryDirectory(dir=files[0].parent) as folder:
                results[key].append(timed(words(Path(folder)), Path(folder)))
    _print(results)
    if not MERGEKIT.exists():
        print("mergekit is not installed and left out; tests/bench/peers/README.md says how to install it.")


def _print(results: Mapping[tuple[str, str], Sequence[Mapping[str, float]]]) -> None:
    medians = {
        key: {name: statistics.median(run[name] for run in runs) for name in runs[0]} for key, runs in results.items()
    }
    print(f"{'whole command':40} {'':9} {'wall s':>7} {'ratio':>6} {'CPU s':>7} {'ratio':>6} {'anonymous GiB':>14}")
    for (name, program), row in medians.items():
        floor = medians[COMMANDS[name].floor if name in COMMANDS else FLOOR, ""]
        print(
            f"{name:40} {program:9} {row['wall']:7.2f} {row['wall'] / floor['wall']:6.2f} {row['cpu']:7.2f} "
            f"{row['cpu'] / floor['cpu']:6.2f} {row['anonymous'] / 2**30:14.2f}"
        )

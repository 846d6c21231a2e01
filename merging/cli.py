"""The command line: what it takes and how it ends. Importing this loads neither torch nor pandas.

Exit codes: 0 done, 1 failed (one sentence on stderr), 2 wrong use, 75 paused, 130 cancelled.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from types import FrameType

from merging import __version__
from merging.errors import Cancelled, MergingError

DONE, FAILED, USAGE, PAUSED, CANCELLED = 0, 1, 2, 75, 130


class UsageError(Exception):
    """The arguments make no sense; one sentence per problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit code."""
    try:
        args = parser().parse_args(argv)
    except SystemExit as stop:  # argparse has printed what is wrong, or the help
        return int(stop.code or 0)
    if getattr(args, "nice", 0):
        os.nice(args.nice)
    code, text = _run(args)
    if text:
        _tell(args, text, code)
    return code


def _run(args: argparse.Namespace) -> tuple[int, str]:
    """Exit code, and what to say if it is not 0."""
    try:
        with _stop_on_signals() as event:
            return importlib.import_module("merging.commands").COMMANDS[args.command](args, event), ""
    except (KeyboardInterrupt, Cancelled):
        code, text = CANCELLED, "Cancelled; nothing was kept."
    except UsageError as error:
        code, text = USAGE, str(error)
    except MergingError as error:
        code, text = FAILED, str(error)
    except BrokenPipeError:  # the reader of our output has gone, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code, text = FAILED, ""
    except Exception as error:
        traceback.print_exc()
        code, text = FAILED, f"Unexpected {type(error).__name__}: {str(error)[:200] or 'no reason given'}"
    return code, text


def _tell(args: argparse.Namespace, text: str, code: int) -> None:
    """Say what went wrong, to people on stderr and to programs where they look."""
    print(text, file=sys.stderr)
    if getattr(args, "json", False):
        print(json.dumps({"error": text, "code": code}, ensure_ascii=False))
    if (events := getattr(args, "events", None)) is not None:
        with contextlib.suppress(OSError), events.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"error": text, "code": code}, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def _stop_on_signals() -> Iterator[Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second one ends the program at once."""
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    top = argparse.ArgumentParser(prog="python -m merging", description="Merge fine-tuned CLIP vision experts.")
    top.add_argument("--version", action="version", version=f"mergescope {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    methods = commands.add_parser("methods", help="list every edit, merge and adapt with its parameters")
    run = commands.add_parser("run", help="run a recipe file into the store")
    run.add_argument("recipe", type=Path, help="a recipe in YAML")
    run.add_argument("--base", type=Path, help="folder from which relative paths count (default: the recipe's)")
    run.add_argument("--need-model", action="store_true", help="compute again if only tables are stored")

    merge = commands.add_parser("merge", help="merge checkpoints into a file or folder", epilog=SPEC_HELP)
    _checkpoints(merge)
    merge.add_argument("--edit", action="append", default=[], metavar="SPEC", help="an edit; may be given repeatedly")
    merge.add_argument("--merge", default="task_arithmetic", metavar="SPEC", help="the merge (default: %(default)s)")
    merge.add_argument(
        "--count-dead-params",
        action="store_true",
        help="count unused text tensors in quantiles, as published code does",
    )
    merge.add_argument("--title", default="", help="what to call the run")
    merge.add_argument("--out", type=Path, required=True, help="a .safetensors file, or a folder for everything")
    merge.add_argument("--force", action="store_true", help="replace what is at --out")

    measure = commands.add_parser("measure", help="measure something of a stored run, such as feature drift")
    measure.add_argument(
        "what",
        help="drift, ablation, features or tsne of a run; signs or pairs of its experts; exemplars, drm_ablations or "
        "task_counts of the benchmark",
    )
    measure.add_argument("run", nargs="?", default="", help="the run's id")

    sweep = commands.add_parser("sweep", help="evaluate recipes at many values; stopped, it goes on where it was")
    _sweep(sweep)

    evaluate = commands.add_parser("evaluate", help="accuracy of a checkpoint on the benchmark")
    evaluate.add_argument("checkpoint", help="a file, or bundled:NAME")
    fit = commands.add_parser("fit", help="check whether checkpoints can be merged")
    _checkpoints(fit)
    fit.add_argument("--values", action="store_true", help="read every number, too, and look for NaN and infinity")

    for command in (run, measure, sweep):
        command.add_argument("--events", type=Path, help="append progress to this file, one JSON object a line")
        command.add_argument("--nice", type=int, default=0, help="lower the priority by this much")
    for command in (run, merge, measure, sweep):
        command.add_argument("--store", type=Path, help="folder of the runs (default: $MERGESCOPE_STORE or the cache)")
    for command in (run, merge):
        command.add_argument("--no-evaluate", action="store_true", help="merge only")
    for command in (run, merge, measure, sweep, evaluate):
        command.add_argument("--device", default="auto", help="auto, cpu, cuda, mps (default: %(default)s)")
    for command in (methods, run, merge, measure, sweep, evaluate, fit):
        command.add_argument("--json", action="store_true", help="print JSON")
    return top


SPEC_HELP = "SPEC is a key, or key:parameter=value,parameter=value; `methods` lists them. Example: ties:density=0.1"


def _sweep(command: argparse.ArgumentParser) -> None:
    command.add_argument("recipes", nargs="*", metavar="RECIPE", help="recipe files or ids of stored runs")
    command.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="WHAT=VALUES",
        help="such as lwptv.prune_ratio=0:1:0.1 or experts=2,4,8; twice for a plane of two values",
    )
    command.add_argument("--line", nargs="?", const="", metavar="VALUES", help="from pretrained (0) to the merge (1)")
    command.add_argument("--plane", metavar="A,B", help="coefficients of two experts, on the values of --vary A=, B=")
    command.add_argument("--split", default="choosing", help="choosing or reporting (default: %(default)s)")
    command.add_argument(
        "--images", type=int, default=128, help="images of each task, 0 for all (default: %(default)s)"
    )
    command.add_argument("--seed", type=int, default=0, help="of the draw of images and the order of experts")
    command.add_argument("--title", default="", help="what to call the sweep")
    command.add_argument("--stored", metavar="ID", help="go on with a stored sweep")
    command.add_argument("--pause-file", type=Path, help="stop between two points as soon as this file is there")


def _checkpoints(command: argparse.ArgumentParser) -> None:
    command.add_argument("--pretrained", required=True, help="a file, or bundled:pretrained")
    command.add_argument(
        "--expert", action="append", default=[], metavar="NAME=FILE", help="an expert; give one for each"
    )

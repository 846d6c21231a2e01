"""What the command line takes. Importing this loads neither torch nor pandas."""

from __future__ import annotations

import argparse
from pathlib import Path

from merging.checkpoints.families import ACTIVATIONS
from merging.cli.commands.benchmark_options import add_benchmark
from merging.export.names import TARGETS
from merging.version import __version__

SPEC_HELP = "SPEC is a key, or key:parameter=value,parameter=value; `methods` lists them. Example: ties:density=0.1"
CODES_HELP = "Exit codes: 0 done, 1 failed (one sentence on stderr), 2 wrong use, 75 paused, 130 cancelled."


def parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    top = argparse.ArgumentParser(
        prog="python -m merging", description="Merge fine-tuned CLIP vision experts.", epilog=CODES_HELP
    )
    top.add_argument("--version", action="version", version=f"mergescope {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    commands.add_parser("methods", help="list every edit, merge and adapt with its parameters")
    run = commands.add_parser("run", help="run a recipe file into the store, such as one from the app")
    run.add_argument("recipe", type=Path, help="a recipe in YAML")
    run.add_argument("--base", type=Path, help="folder from which relative paths count (default: the recipe's)")
    run.add_argument("--need-model", action="store_true", help="compute again if only tables are stored")
    run.add_argument("--out", type=Path, help="export the model, too: a folder, or a .safetensors file")

    merge = commands.add_parser("merge", help="merge checkpoints and export the model", epilog=SPEC_HELP)
    _merge(merge)
    export = commands.add_parser("export", help="export the model of a stored run as a folder")
    export.add_argument("run", help="the run's id")
    export.add_argument("--out", type=Path, required=True, help="a folder, or a .safetensors file")
    convert = commands.add_parser("convert", help="write a checkpoint of any format for Transformers or open_clip")
    convert.add_argument("checkpoint", help="a file or folder of any known format, or bundled:NAME")
    convert.add_argument(
        "--out", type=Path, help="the folder to write (default: the checkpoint's name and the target's)"
    )
    convert.add_argument(
        "--base", help="the pretrained model: of an adapter, or for the projection and text side that a file lacks"
    )
    inspect = commands.add_parser("inspect", help="say what a checkpoint is, by what is in it")
    inspect.add_argument("checkpoint", help="a file or folder, or bundled:NAME")
    inspect.add_argument("--no-digest", action="store_true", help="read no numbers, only what the file says of them")

    measure = commands.add_parser("measure", help="measure something of a stored run, such as feature drift")
    measure.add_argument(
        "what",
        help="drift, ablation, predictions, features or tsne of a run; signs or pairs of its experts; exemplars, "
        "drm_ablations or task_counts of the benchmark",
    )
    measure.add_argument("run", nargs="?", default="", help="the run's id")

    sweep = commands.add_parser("sweep", help="evaluate recipes at many values; stopped, it goes on where it was")
    _sweep(sweep)

    evaluate = commands.add_parser("evaluate", help="accuracy of a checkpoint on the benchmark")
    evaluate.add_argument("checkpoint", help="a file, or bundled:NAME")
    _activation(evaluate)
    fit = commands.add_parser("fit", help="check whether checkpoints can be merged")
    _checkpoints(fit)
    fit.add_argument("--values", action="store_true", help="read every number, too, and look for NaN and infinity")
    fit.add_argument("--keep", action="store_true", help="keep the report for the app; exit code 0 whatever it says")
    digest = commands.add_parser("digest", help="sha-256 of checkpoints' tensors, remembered for the app")
    digest.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help="a file or folder, or bundled:NAME")

    for command in (run, merge, export, convert):
        _target(command)
    for command in (run, measure, sweep, export, fit, digest):
        command.add_argument("--events", type=Path, help="append progress to this file, one JSON object a line")
        command.add_argument("--nice", type=int, default=0, help="lower the priority by this much")
    for command in (run, merge, export, measure, sweep, fit, digest):
        command.add_argument("--store", type=Path, help="folder of the runs (default: $MERGESCOPE_STORE or the cache)")
    for command in (run, merge, export):
        command.add_argument("--no-evaluate", action="store_true", help="merge only")
    for command in (run, merge, export, measure, sweep, evaluate):
        command.add_argument("--device", default="auto", help="auto, cpu, cuda, mps (default: %(default)s)")
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", help="print JSON")
    add_benchmark(commands)
    return top


def _merge(command: argparse.ArgumentParser) -> None:
    _checkpoints(command)
    command.add_argument("--edit", action="append", default=[], metavar="SPEC", help="an edit; may be given repeatedly")
    command.add_argument("--merge", default="task_arithmetic", metavar="SPEC", help="the merge (default: %(default)s)")
    command.add_argument(
        "--count-dead-params",
        action="store_true",
        help="count unused text tensors in quantiles, as published code does",
    )
    command.add_argument("--title", default="", help="what to call the run")
    command.add_argument(
        "--out", type=Path, required=True, help="a folder for everything, or a .safetensors file for the weights alone"
    )


def _target(command: argparse.ArgumentParser) -> None:
    """How a model is written."""
    command.add_argument("--to", choices=TARGETS, default=TARGETS[0], help="for Transformers (hf) or open_clip")
    _activation(command)
    command.add_argument(
        "--hub-id",
        action="append",
        default=[],
        metavar="NAME=ID",
        help="repository of an expert, or of pretrained, for the model card; may be given repeatedly",
    )
    command.add_argument(
        "--shard-size", type=_gigabytes, default=5.0, metavar="GB", help="divide larger weights (default: %(default)s)"
    )
    command.add_argument(
        "--overwrite", "--force", action="store_true", help="replace what an earlier export has left at --out"
    )


def _gigabytes(text: str) -> float:
    """A size that something can have."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"a number of gigabytes above 0 is expected, got {text!r}")
    return value


def _activation(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--activation", choices=ACTIVATIONS, help="of the models, where nothing beside their weights says so"
    )


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

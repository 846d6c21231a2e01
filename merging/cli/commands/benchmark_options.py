"""What the command ``benchmark`` takes. Importing this loads nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from merging.checkpoints.families import ACTIVATIONS

TASK_HELP = (
    "a data set: NAME=PATH, then perhaps ,prompts=KEY ,classes=FILE ,head=FILE ,expert=FILE ,title=TEXT; give one for "
    "each, or describe them in a file with --from"
)


def add_benchmark(commands: Any) -> None:
    """Add the command to the parser's."""
    benchmark = commands.add_parser("benchmark", help="make a benchmark folder from your own data, or check one")
    actions = benchmark.add_subparsers(dest="action", required=True, metavar="ACTION")
    make = actions.add_parser("make", help="write a benchmark folder from data sets, experts and heads")
    make.add_argument("folder", type=Path, help="the folder to write")
    make.add_argument("--from", dest="description", type=Path, metavar="FILE", help="a description in YAML")
    make.add_argument("--pretrained", metavar="MODEL", help="a file, a folder, hf-hub:ORGANIZATION/NAME or MODEL/TAG")
    make.add_argument("--text", metavar="MODEL", help="where the text tower is (default: the pretrained model)")
    make.add_argument("--multitask", metavar="MODEL", help="a model trained on all tasks")
    make.add_argument("--activation", choices=ACTIVATIONS, help="of the models, where nothing beside them says so")
    make.add_argument("--task", action="append", default=[], metavar="NAME=PATH[,...]", help=TASK_HELP)
    make.add_argument("--images", type=int, metavar="N", help="most images in each half, 0 for all (default: 250)")
    make.add_argument("--exemplars", type=int, metavar="N", help="most training images, 0 for all (default: 96)")
    make.add_argument("--seed", type=int, metavar="N", help="of the draw (default: 0)")
    make.add_argument("--overwrite", "--force", action="store_true", help="replace a folder that was made so")
    make.add_argument("--device", default="auto", help="auto, cpu, cuda, mps (default: %(default)s)")
    make.add_argument(
        "--evaluate", action="store_true", help="also evaluate the pretrained model and every expert, to compare with"
    )
    make.add_argument("--store", type=Path, help="taken for the app's sake; nothing is written there")
    make.add_argument("--nice", type=int, default=0, help="lower the priority by this much")
    make.add_argument("--events", type=Path, help="append progress to this file, one JSON object a line")
    check = actions.add_parser("check", help="whether a benchmark folder is whole")
    check.add_argument("folder", type=Path)
    look = actions.add_parser("look", help="what a data set holds, without writing anything")
    look.add_argument("path", type=Path)
    look.add_argument("--image-column", metavar="NAME", help="of a Hugging Face data set")
    look.add_argument("--label-column", metavar="NAME", help="of a Hugging Face data set")
    score = actions.add_parser("score", help="accuracy of a model from features that were computed before")
    score.add_argument("features", type=Path, help="an npz with features, labels and model")
    score.add_argument("--model", required=True, help="the checkpoint that they are of")
    score.add_argument("--head", type=Path, required=True, help="a head: head_*.pt or a file like it")
    for action in (make, check, look, score):
        action.add_argument("--json", action="store_true", help="print JSON")

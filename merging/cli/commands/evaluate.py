"""The command ``evaluate``."""

from __future__ import annotations

import argparse
from threading import Event

from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.evaluate import evaluate
from merging.checkpoints.architecture import stating
from merging.cli.commands.merge import score_table
from merging.cli.exit_codes import DONE, UsageError
from merging.cli.output import dumps, reporting
from merging.errors import MergingError
from merging.formats.opening import open_checkpoint
from merging.recipes.chain_text import check_file


def evaluate_checkpoint(args: argparse.Namespace, stop: Event) -> int:
    """Accuracy of one checkpoint on every task."""
    problems: list[str] = []
    check_file(args.checkpoint, "the checkpoint", problems)
    if problems:
        raise UsageError(problems)
    checkpoint, benchmark = stating(open_checkpoint(args.checkpoint), args.activation or ""), Benchmark.load()
    if reason := benchmark.misfit(checkpoint):
        raise MergingError(f"{checkpoint.name} cannot be evaluated: {reason}")
    with reporting(getattr(args, "events", None)) as progress:
        scores = evaluate(checkpoint, benchmark, device=args.device, progress=progress, cancel=stop)
    print(dumps(scores.to_dict("records")) if args.json else score_table(scores, ()))
    return DONE

"""What the commands ``fit`` and ``digest`` do: look at models before anything is computed with them."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from threading import Event

from merging.catalog import fit_reports
from merging.checkpoints.digests import DIGESTS
from merging.cli.exit_codes import DONE, FAILED, UsageError
from merging.cli.output import columns, dumps, reporting
from merging.formats.opening import open_checkpoint
from merging.inspection.fit import fit
from merging.recipes.chain_text import check_file, parse_experts
from merging.settings import store_root


def check_fit(args: argparse.Namespace, stop: Event) -> int:
    """Whether checkpoints fit together; exit code 1 if not, unless the report is only to be kept."""
    problems: list[str] = []
    check_file(args.pretrained, "the pretrained model", problems)
    experts = parse_experts(args.expert, problems)
    if problems:
        raise UsageError(problems)
    pretrained = open_checkpoint(args.pretrained, "pretrained")
    opened = {name: open_checkpoint(reference, name, like=pretrained) for name, reference in experts.items()}
    with reporting(args.events) as progress:
        report = fit(pretrained, opened, values=args.values, sample=True, progress=progress, cancel=stop)
    if args.keep:
        root = args.store or store_root()
        fit_reports.keep(root, pretrained, opened, report)
        for checkpoint in (pretrained, *opened.values()):
            DIGESTS.keep(root, checkpoint)
    if args.json:
        rows = [asdict(problem) for problem in report.problems]
        print(dumps({"ok": report.mergeable, "tensors": report.tensors, "problems": rows, "notes": report.notes}))
    else:
        print("\n".join((report.text(), *report.notes)))
    return DONE if report.mergeable or args.keep else FAILED


def digest(args: argparse.Namespace, stop: Event) -> int:
    """The digests of checkpoints, which the app then knows, too."""
    problems: list[str] = []
    for reference in args.checkpoints:
        check_file(reference, "the checkpoint", problems)
    if problems:
        raise UsageError(problems)
    opened = [open_checkpoint(reference, reference) for reference in args.checkpoints]
    with reporting(args.events) as progress:
        found = DIGESTS.read(args.store or store_root(), opened, progress, stop)
    print(dumps(found) if args.json else columns([(value, name) for name, value in found.items()]))
    return DONE

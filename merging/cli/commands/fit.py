"""The commands ``fit`` and ``digest``: look at models before anything is computed with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE, FAILED
from merging.cli.model_options import architecture_option, checkpoint_options
from merging.cli.option_types import CheckpointType
from merging.cli.options import Command, argument, job_options, option
from merging.cli.output import columns, dumps, reporting


@click.command(cls=Command)
@checkpoint_options
@architecture_option
@option("--values", is_flag=True, help="read every number, too, and look for NaN and infinity")
@option("--keep", is_flag=True, help="keep the report for the app; exit code 0 whatever it says")
@job_options
@click.pass_obj
def fit(
    call: Call,
    pretrained: str,
    experts: Mapping[str, str],
    architecture: str,
    values: bool,
    keep: bool,
    store: Path | None,
) -> int:
    """Check whether checkpoints can be merged."""
    from merging.catalog import fit_reports
    from merging.checkpoints.architecture import with_architecture
    from merging.checkpoints.digests import DIGESTS
    from merging.checkpoints.stated_architecture import StatedArchitecture
    from merging.formats.opening import open_checkpoint
    from merging.inspection.fit import fit as compare
    from merging.settings import store_root

    given = StatedArchitecture.parse(architecture)
    base = with_architecture(open_checkpoint(pretrained, "pretrained"), given)
    opened = {
        name: with_architecture(open_checkpoint(reference, name, like=base), given, sizes=False)
        for name, reference in experts.items()
    }
    with reporting(call.events) as progress:
        report = compare(base, opened, values=values, sample=True, progress=progress, cancel=call.stop)
    if keep:
        root = store or store_root()
        fit_reports.keep(root, base, opened, report)
        for checkpoint in (base, *opened.values()):
            DIGESTS.keep(root, checkpoint)
    if call.json:
        rows = [asdict(problem) for problem in report.problems]
        print(dumps({"ok": report.mergeable, "tensors": report.tensors, "problems": rows, "notes": report.notes}))
    else:
        print("\n".join((report.text(), *report.notes)))
    return DONE if report.mergeable or keep else FAILED


@click.command(cls=Command)
@argument(
    "checkpoints",
    type=CheckpointType("the checkpoint"),
    nargs=-1,
    required=True,
    metavar="CHECKPOINT...",
    help="a file or folder, or bundled:NAME",
)
@job_options
@click.pass_obj
def digest(call: Call, checkpoints: Sequence[str], store: Path | None) -> int:
    """SHA-256 of checkpoints' tensors, remembered for the app."""
    from merging.checkpoints.digests import DIGESTS
    from merging.formats.opening import open_checkpoint
    from merging.settings import store_root

    opened = [open_checkpoint(reference, reference) for reference in checkpoints]
    with reporting(call.events) as progress:
        digests = DIGESTS.read(store or store_root(), opened, progress, call.stop)
    print(dumps(digests) if call.json else columns([(value, name) for name, value in digests.items()]))
    return DONE

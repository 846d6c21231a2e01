"""The commands ``fit`` and ``digest``, which inspect models before anything is computed with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from merging.cli.call import Call
from merging.cli.exit_codes import DONE, FAILED
from merging.cli.model_options import (
    ModelType,
    activation_option,
    architecture_option,
    checkpoint_options,
    vocabulary_option,
)
from merging.cli.options import Command, argument, job_options, option
from merging.cli.output import encode_json, format_columns, report_progress
from merging.models.formats.model_sources import ModelRef

if TYPE_CHECKING:
    from merging.models.inspection.fit_report import FitReport

VERDICT_HELP = (
    'Without --keep the exit code is 0 if they fit, else 1. --json states the "verdict": "fits", "doubtful" (a '
    'merge can run, but something is probably wrong) or "does not fit" (no merge can run).'
)


@click.command(cls=Command, epilog=VERDICT_HELP)
@checkpoint_options
@option("--values", is_flag=True, help="read every value also of large files, instead of a sample")
@activation_option
@architecture_option
@vocabulary_option
@option("--keep", is_flag=True, help="store the report for the app; the exit code is then 0 in any case")
@job_options
@click.pass_obj
def fit(
    call: Call,
    pretrained: ModelRef,
    experts: Mapping[str, ModelRef],
    values: bool,
    activation: str | None,
    architecture: str,
    vocabulary: str,
    keep: bool,
    store: Path | None,
) -> int:
    """Check whether checkpoints can be merged."""
    from merging.base.settings import store_root
    from merging.models.architecture import add_stated_architecture
    from merging.models.digest_cache import DIGESTS
    from merging.models.formats.model_sources import open_models
    from merging.models.inspection.fit_check import check_fit
    from merging.models.inspection.fit_report import FITS
    from merging.models.stated_architecture import StatedArchitecture
    from merging.sharing.catalog import fit_reports
    from merging.study.runs.run_store import Store

    stated = StatedArchitecture.parse(architecture)
    pretrained_checkpoint, expert_checkpoints = open_models(pretrained, experts)
    pretrained_checkpoint = add_stated_architecture(pretrained_checkpoint, stated)
    expert_checkpoints = {  # sizes=False: the fit check compares the shapes
        name: add_stated_architecture(expert, stated, sizes=False) for name, expert in expert_checkpoints.items()
    }
    with report_progress(call.events) as progress:
        context = call.context(progress)
        report = check_fit(
            pretrained_checkpoint,
            expert_checkpoints,
            values=values or None,  # None: ``sample`` decides, which reads only a part of large files
            sample=True,
            vocabulary=vocabulary,
            context=context,
        )
    printed_report = report.remove_kind("activation") if activation else report  # --activation applies to all models
    print(encode_json(_collect_facts(printed_report)) if call.json else "\n".join(_format_report(printed_report)))
    if keep:  # after printing the report, as the store may refuse it
        root = Store(store or store_root(), libraries=()).root  # its runs know checkpoints by their digests
        for checkpoint in (pretrained_checkpoint, *expert_checkpoints.values()):
            DIGESTS.store(root, checkpoint)
        fit_reports.store_report(root, pretrained_checkpoint, expert_checkpoints, report)
    return DONE if keep or printed_report.verdict == FITS else FAILED


def _collect_facts(report: FitReport) -> dict[str, object]:
    """The report as JSON."""
    return {
        "verdict": report.verdict,
        "tensors": report.tensors,
        "problems": [asdict(problem) for problem in report.problems],
        "doubts": report.doubt_texts,
        "experts": {name: distance.facts() for name, distance in report.distances.items()},
        "notes": report.notes,
    }


def _format_report(report: FitReport) -> Iterator[str]:
    """The report in words."""
    yield report.text()
    yield from (f"{name}: {distance.text()}." for name, distance in report.distances.items())
    yield from report.notes
    yield report.read + (" --values reads every value." if report.sampled else "")


@click.command(cls=Command)
@argument(
    "checkpoints",
    type=ModelType("the checkpoint"),
    nargs=-1,
    required=True,
    metavar="CHECKPOINT...",
    help="a file or folder, or bundled:NAME or bundled:gentle/NAME",
)
@job_options
@click.pass_obj
def digest(call: Call, checkpoints: Sequence[ModelRef], store: Path | None) -> int:
    """Compute the digests of checkpoints' tensors, and store them for the app."""
    from merging.base.settings import store_root
    from merging.models.digest_cache import DIGESTS
    from merging.study.runs.run_store import Store

    opened_checkpoints = [model.open(model.text) for model in checkpoints]
    with report_progress(call.events) as progress:
        digests = DIGESTS.read(
            Store(store or store_root(), libraries=()).root, opened_checkpoints, call.context(progress)
        )
    print(encode_json(digests) if call.json else format_columns([(value, name) for name, value in digests.items()]))
    return DONE

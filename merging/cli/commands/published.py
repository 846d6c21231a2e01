"""The command ``published``: the papers' experiments on published models, planned, fetched, computed and compared."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from merging.base.errors import Cancelled, HubError, MergingError, Paused
from merging.base.text import duration_text, size_text
from merging.cli.call import Call
from merging.cli.commands.published_options import (
    FetchOptions,
    choice_options,
    expect_option,
    fetch_options,
    from_option,
    into_option,
    to_option,
)
from merging.cli.exit_codes import DONE, FAILED, UsageError
from merging.cli.options import (
    Command,
    OrderedGroup,
    argument,
    device_option,
    job_options,
    pause_option,
    store_option,
)
from merging.cli.output import columns, encode_json, print_warning, report_progress
from merging.tasks.context import Context

if TYPE_CHECKING:
    from merging.sharing.published.choice import Choice
    from merging.sharing.published.comparison_table import PublishedTable
    from merging.sharing.published.experiment_catalogue import Experiment
    from merging.sharing.published.experiment_run import ExperimentFolders, ExperimentRun
    from merging.sharing.published.experiment_steps import ExperimentStep
    from merging.sharing.published.fetch_plan import FetchPlan
    from merging.sharing.published.repository_lock import Lock

QUESTION = "Fetch and compute this?"
FETCHING_STEPS = 2  # the number of steps, at the beginning, that need a network


@click.group(cls=OrderedGroup, invoke_without_command=True, no_args_is_help=False, subcommand_metavar="[ACTION ...]")
@click.option("--json", is_flag=True, help="print JSON")
@click.pass_context
def published(ctx: click.Context, json: bool) -> int | None:
    """List the papers' experiments on published models, or run one."""
    if ctx.invoked_subcommand is not None:
        return None
    ctx.obj.json = ctx.obj.json or json
    return _print_experiments(ctx.obj)


def _print_experiments(call: Call) -> int:
    """Print every experiment: its downloads, the part that is stored already, and its time with the default choice."""
    from merging.sharing.published.choice import make_choice
    from merging.sharing.published.experiment_catalogue import list_experiments
    from merging.sharing.published.experiment_run import find_folders
    from merging.sharing.published.experiment_steps import make_choice_plan
    from merging.sharing.published.experiment_texts import plan_data

    plans = [make_choice_plan(one, make_choice(one), find_folders(one.key), "cpu") for one in list_experiments()]
    if call.json:
        print(encode_json([plan_data(each) for each in plans]))
        return DONE
    rows = [("key", "experiment", "to fetch", "here", "computing", "licenses")]
    for each in plans:
        sign = "" if each.has_exact_sizes else "≈ "
        stated = sorted({part.license for part in each.parts})
        rows.append(
            (each.experiment, each.title, "nothing" if each.is_complete else f"{sign}{size_text(each.bytes_to_fetch)}",
             size_text(each.local_bytes) if each.local_bytes else "", f"≈ {duration_text(each.compute_seconds)}",
             ", ".join(stated))
        )  # fmt: skip
    print(columns(rows))
    print("Computing is on 1,000 images of each test set on this CPU: an estimate.")
    print("`published plan KEY` says more, `published run KEY` fetches and computes.")
    return DONE


@published.command(cls=Command)
@choice_options
@store_option
@from_option
@device_option
@click.pass_obj
def plan(call: Call, chosen: Experiment, choice: Choice, store: Path | None, into: Path | None, device: str) -> int:
    """What an experiment would fetch and cost; nothing is fetched."""
    from merging.sharing.published.experiment_run import ExperimentRun, find_folders

    folders = _require_fetched_folder(find_folders(chosen.key, store, into))
    _print_plan(call, _make_plan(ExperimentRun(chosen, choice, folders, device)))
    return DONE


@published.command(cls=Command)
@choice_options
@into_option
@fetch_options
@job_options
@pause_option
@click.pass_obj
def fetch(
    call: Call, chosen: Experiment, choice: Choice, into: Path | None, fetching: FetchOptions, store: Path | None
) -> int:
    """Only fetch what an experiment needs, for a machine with a network."""
    from merging.sharing.published.experiment_run import ExperimentRun, find_folders
    from merging.sharing.published.experiment_steps import STEPS

    run = ExperimentRun(
        chosen, choice, find_folders(chosen.key, store, into), "cpu", fetching.latest, fetching.revisions,
        fetching.bytes_a_second,
    )  # fmt: skip
    if _confirm_fetching(call, run, fetching):
        _run_steps(call, run, STEPS[:FETCHING_STEPS])
    after = _make_plan(run)
    print(
        encode_json({"place": after.cache_folder, "bytes": after.local_bytes})
        if call.json
        else f"{size_text(after.local_bytes)} in {after.cache_folder}"
    )
    return DONE


@published.command(cls=Command)
@choice_options
@from_option
@to_option
@expect_option
@fetch_options
@job_options
@pause_option
@device_option
@click.pass_obj
def run(
    call: Call, chosen: Experiment, choice: Choice, into: Path | None, to: Path | None, expect: str | None,
    fetching: FetchOptions, store: Path | None, device: str,
) -> int:  # fmt: skip
    """Plan, fetch, make the benchmark, run the recipes, print the table; stopped, it goes on where it was."""
    from merging.sharing.published.experiment_run import ExperimentRun, find_folders
    from merging.sharing.published.experiment_steps import STEPS, read_published_table, store_choice

    folders = _require_fetched_folder(find_folders(chosen.key, store, into))
    run = ExperimentRun(chosen, choice, folders, device, fetching.latest, fetching.revisions, fetching.bytes_a_second)
    missing = _confirm_fetching(call, run, fetching)
    store_choice(folders, choice)
    _run_steps(call, run, STEPS if missing else STEPS[FETCHING_STEPS:])
    return _print_table(call, read_published_table(chosen, folders), to, expect)


@published.command(cls=Command)
@argument("key", help="the key of an experiment that ran here")
@store_option
@to_option
@expect_option
@click.pass_obj
def table(call: Call, key: str, store: Path | None, to: Path | None, expect: str | None) -> int:
    """Print the table of what was computed."""
    from merging.sharing.published.experiment_catalogue import read_experiment
    from merging.sharing.published.experiment_run import find_folders
    from merging.sharing.published.experiment_steps import read_published_table

    return _print_table(call, read_published_table(read_experiment(key), find_folders(key, store)), to, expect)


def _require_fetched_folder(folders: ExperimentFolders) -> ExperimentFolders:
    """The folders of an experiment, after checking that ``fetch --into`` has written the folder of --from.

    Raises:
        UsageError: it has not.
    """
    from merging.sharing.published.repository_lock import LOCK

    folder, into = folders.lock_cache_folder, folders.into
    if folder is not None and not (folder / LOCK).is_file():
        problem = f"has no published/{folders.key}/{LOCK}" if into and into.is_dir() else "is no folder"
        remedy = f"`published fetch {folders.key} --into FOLDER` writes the folder that --from reads."
        raise UsageError([f"{into} {problem}. {remedy}"])
    return folders


def _make_plan(run: ExperimentRun, lock: Lock | None = None) -> FetchPlan:
    from merging.base.devices import choose_device
    from merging.sharing.published.experiment_steps import make_choice_plan as planned

    return planned(run.experiment, run.choice, run.folders, choose_device(run.device).type, lock)


def _print_plan(call: Call, planned: FetchPlan) -> None:
    from merging.sharing.published.experiment_texts import plan_data, plan_rows, plan_sentences

    if call.json:
        print(encode_json(plan_data(planned)))
        return
    print(f"{planned.experiment}: {planned.title}\n{columns(plan_rows(planned))}")
    print("\n".join(plan_sentences(planned)), flush=True)


def _confirm_fetching(call: Call, run: ExperimentRun, fetching: FetchOptions) -> bool:
    """Whether files must be fetched; if so, show the plan and ask the user once.

    Commits other than the pinned ones are pinned only after a yes.

    Raises:
        MergingError: the user declines.
    """
    from merging.sharing.published.experiment_steps import pin_repositories

    if not run.may_change_commits and _make_plan(run).is_complete:
        return False
    with _explain_failures(call, run):
        context = Context(cancel=call.is_stop_requested)
        lock = pin_repositories(
            run.experiment, run.choice, run.folders, latest=run.latest, revisions=run.revisions, context=context
        )
        planned = _make_plan(run, lock)
    if not call.json and call.events is None:
        _print_plan(call, planned)
    if not fetching.yes and not _confirm():
        raise MergingError("Nothing was fetched.")
    if run.may_change_commits:
        run.folders.store_lock(lock)
    return True


def _run_steps(call: Call, run: ExperimentRun, steps: Sequence[ExperimentStep]) -> None:
    """Run steps. If a pause is requested, or the Hub is busy, the remaining steps are left for later."""
    from merging.sharing.published.experiment_steps import run_steps

    with _explain_failures(call, run), report_progress(call.events) as progress:
        run_steps(run, steps, Context(progress=progress, cancel=call.is_stop_requested, warn=print_warning))


@contextlib.contextmanager
def _explain_failures(call: Call, run: ExperimentRun) -> Iterator[None]:
    """Explain a failure of the Hub in the block for the experiment, and turn a requested pause into ``Paused``."""
    from merging.sharing.published.fetch_failures import explain_failure

    try:
        yield
    except Paused:
        raise
    except Cancelled as error:
        if call.stop.is_set() or not call.is_pause_requested():
            raise
        raise Paused(str(error).replace("Cancelled", "Paused", 1)) from None
    except HubError as error:
        if error.later and error.reason != "connection":
            raise Paused(str(error)) from None
        with contextlib.suppress(HubError):  # a pinned commit lacks a file, which the error states
            error = explain_failure(error, run, _make_plan(run))
        raise error from None


def _confirm() -> bool:
    """Whether the user answers the question with yes. Raises UsageError without a terminal to ask on."""
    if not sys.stdin.isatty():
        raise UsageError(["This fetches files, and there is no terminal to ask: --yes answers."])
    return click.confirm(QUESTION, default=False, err=True)


def _print_table(call: Call, shown: PublishedTable, to: Path | None, expect: str | None) -> int:
    """Print the table, write it to the file ``to``, and return the exit code: whether it meets the expectation."""
    from merging.base.files.records import write_text
    from merging.sharing.published.accuracy_verdicts import is_expectation_met
    from merging.sharing.published.experiment_texts import (
        table_csv,
        table_data,
        table_markdown,
        table_rows,
        table_sentences,
        task_rows,
    )

    if to is not None:
        texts = {".md": table_markdown(shown), ".csv": table_csv(shown), ".json": encode_json(table_data(shown)) + "\n"}
        write_text(to, texts[to.suffix])
    if call.json:
        print(encode_json(table_data(shown)))
    else:
        print("\n".join(table_sentences(shown)))
        print(f"{columns(table_rows(shown))}\n\n{columns(task_rows(shown))}")
    return DONE if expect is None or is_expectation_met(shown.verdicts, expect) else FAILED

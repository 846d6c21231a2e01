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
    FetchSettings,
    choice_options,
    expect_option,
    fetch_options,
    from_option,
    into_option,
    pack_option,
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
from merging.cli.output import encode_json, format_columns, print_warning, report_progress
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
FETCHING_STEP_COUNT = 2  # the number of first steps, which need a network


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
        print(encode_json([plan_data(fetch_plan) for fetch_plan in plans]))
        return DONE
    rows = [("key", "experiment", "to fetch", "here", "computing", "licenses")]
    for fetch_plan in plans:
        size_prefix = "" if fetch_plan.has_exact_sizes else "≈ "
        licenses = sorted({part.license for part in fetch_plan.parts})
        rows.append(
            (
                fetch_plan.experiment,
                fetch_plan.title,
                "nothing" if fetch_plan.is_complete else f"{size_prefix}{size_text(fetch_plan.bytes_to_fetch)}",
                size_text(fetch_plan.local_bytes) if fetch_plan.local_bytes else "",
                f"≈ {duration_text(fetch_plan.compute_seconds)}",
                ", ".join(licenses),
            )
        )
    print(format_columns(rows))
    print("Times of computing are estimates for 1,000 images of each test set on this CPU.")
    print("`published plan KEY` prints details, `published run KEY` fetches and computes.")
    return DONE


@published.command(cls=Command)
@choice_options
@store_option
@from_option
@device_option
@click.pass_obj
def plan(
    call: Call, experiment: Experiment, choice: Choice, store: Path | None, separate_cache: Path | None, device: str
) -> int:
    """Print the downloads and costs of an experiment, without fetching anything."""
    from merging.sharing.published.experiment_run import ExperimentRun, find_folders

    folders = _require_fetched_folder(find_folders(experiment.key, store, separate_cache))
    _print_plan(call, _make_plan(ExperimentRun(experiment, choice, folders, device)))
    return DONE


@published.command(cls=Command)
@choice_options
@into_option
@fetch_options
@job_options
@pause_option
@click.pass_obj
def fetch(
    call: Call,
    experiment: Experiment,
    choice: Choice,
    separate_cache: Path | None,
    fetch_settings: FetchSettings,
    store: Path | None,
) -> int:
    """Only fetch the files of an experiment, on a machine with a network."""
    from merging.sharing.published.experiment_run import ExperimentRun, find_folders
    from merging.sharing.published.experiment_steps import STEPS

    folders = find_folders(experiment.key, store, separate_cache)
    experiment_run = ExperimentRun(
        experiment,
        choice,
        folders,
        "cpu",
        fetch_settings.latest,
        fetch_settings.revisions,
        fetch_settings.bytes_per_second,
    )
    if _confirm_fetching(call, experiment_run, fetch_settings):
        _run_steps(call, experiment_run, STEPS[:FETCHING_STEP_COUNT])
    final_plan = _make_plan(experiment_run)
    print(
        encode_json({"place": final_plan.cache_folder, "bytes": final_plan.local_bytes})
        if call.json
        else f"{size_text(final_plan.local_bytes)} in {final_plan.cache_folder}"
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
    call: Call,
    experiment: Experiment,
    choice: Choice,
    separate_cache: Path | None,
    table_file: Path | None,
    expect: str | None,
    fetch_settings: FetchSettings,
    store: Path | None,
    device: str,
) -> int:
    """Plan, fetch, make the benchmark, run the recipes, print the table; a stopped run can be continued."""
    from merging.sharing.published.experiment_run import ExperimentRun, find_folders
    from merging.sharing.published.experiment_steps import STEPS, read_published_table, store_choice

    folders = _require_fetched_folder(find_folders(experiment.key, store, separate_cache))
    experiment_run = ExperimentRun(
        experiment,
        choice,
        folders,
        device,
        fetch_settings.latest,
        fetch_settings.revisions,
        fetch_settings.bytes_per_second,
    )
    is_fetch_needed = _confirm_fetching(call, experiment_run, fetch_settings)
    store_choice(folders, choice)
    _run_steps(call, experiment_run, STEPS if is_fetch_needed else STEPS[FETCHING_STEP_COUNT:])
    code = _print_table(call, read_published_table(experiment, folders), table_file, expect)
    if not call.json:
        print(
            f"To show these figures to others, without weights: mergescope published table {experiment.key} --pack "
            f"{experiment.key}.msc"
        )
    return code


@published.command(cls=Command)
@argument("key", help="the key of an experiment that has run in this store")
@store_option
@to_option
@pack_option
@expect_option
@click.pass_obj
def table(
    call: Call, key: str, store: Path | None, table_file: Path | None, pack: Path | None, expect: str | None
) -> int:
    """Print the table of the computed rows."""
    from merging.sharing.published.experiment_catalogue import read_experiment
    from merging.sharing.published.experiment_run import find_folders
    from merging.sharing.published.experiment_steps import read_published_table

    folders = find_folders(key, store)
    code = _print_table(call, read_published_table(read_experiment(key), folders), table_file, expect)
    if pack is not None:
        _pack_rows(call, folders, pack)
    return code


def _pack_rows(call: Call, folders: ExperimentFolders, path: Path) -> None:
    """Write the runs of the computed rows, and the evaluations that they are compared with, to a pack."""
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.sharing.packs.pack_runs import pack_runs
    from merging.sharing.published.experiment_steps import list_measured_runs
    from merging.study.runs.run_store import Store

    benchmark = Benchmark.load(folders.benchmark_folder)
    run_store = Store(folders.root, benchmark=benchmark.digest)
    written = pack_runs(list_measured_runs(folders), run_store, [benchmark], path)
    for warning in written.warnings:
        print_warning(warning)
    if not call.json:
        print(f"{path.name}: {size_text(written.size)}. To look at it: mergescope app --open {path.name}")


def _require_fetched_folder(folders: ExperimentFolders) -> ExperimentFolders:
    """The folders of an experiment, after checking that ``fetch --into`` has written the folder of --from.

    Raises:
        UsageError: it has not.
    """
    from merging.sharing.published.repository_lock import LOCK_FILE

    folder, separate_cache = folders.separate_lock_folder, folders.separate_cache
    if folder is not None and not (folder / LOCK_FILE).is_file():
        problem = (
            f"has no published/{folders.key}/{LOCK_FILE}"
            if separate_cache and separate_cache.is_dir()
            else "is not a folder"
        )
        remedy = f"`published fetch {folders.key} --into FOLDER` writes the folder that --from reads."
        raise UsageError([f"{separate_cache} {problem}. {remedy}"])
    return folders


def _make_plan(run: ExperimentRun, lock: Lock | None = None) -> FetchPlan:
    from merging.base.devices import choose_device
    from merging.sharing.published.experiment_steps import make_choice_plan

    return make_choice_plan(run.experiment, run.choice, run.folders, choose_device(run.device).type, lock)


def _print_plan(call: Call, fetch_plan: FetchPlan) -> None:
    from merging.sharing.published.experiment_texts import plan_data, plan_rows, plan_sentences

    if call.json:
        print(encode_json(plan_data(fetch_plan)))
        return
    print(f"{fetch_plan.experiment}: {fetch_plan.title}\n{format_columns(plan_rows(fetch_plan))}")
    print("\n".join(plan_sentences(fetch_plan)), flush=True)


def _confirm_fetching(call: Call, run: ExperimentRun, fetch_settings: FetchSettings) -> bool:
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
        fetch_plan = _make_plan(run, lock)
    if not call.json and call.events is None:
        _print_plan(call, fetch_plan)
    if not fetch_settings.yes and not _confirm():
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
    """Explain a failure of the Hub in the block, and turn a cancellation by a pause file into ``Paused``."""
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
        if error.later and error.reason != "connection":  # the Hub is busy, and the same call may succeed later
            raise Paused(str(error)) from None
        with contextlib.suppress(HubError):  # a pinned commit lacks a file, which the error states
            error = explain_failure(error, run, _make_plan(run))
        raise error from None


def _confirm() -> bool:
    """Whether the user confirms the question. Raises UsageError if there is no terminal."""
    if not sys.stdin.isatty():
        raise UsageError(["This command fetches files, and there is no terminal for its question. Confirm with --yes."])
    return click.confirm(QUESTION, default=False, err=True)


def _print_table(call: Call, published_table: PublishedTable, table_file: Path | None, expect: str | None) -> int:
    """Print the table, and write it to ``table_file``. Returns FAILED if it does not meet the expectation."""
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

    if table_file is not None:
        texts = {
            ".md": table_markdown(published_table),
            ".csv": table_csv(published_table),
            ".json": encode_json(table_data(published_table)) + "\n",
        }
        write_text(table_file, texts[table_file.suffix])
    if call.json:
        print(encode_json(table_data(published_table)))
    else:
        print("\n".join(table_sentences(published_table)))
        print(f"{format_columns(table_rows(published_table))}\n\n{format_columns(task_rows(published_table))}")
    return DONE if expect is None or is_expectation_met(published_table.verdicts, expect) else FAILED

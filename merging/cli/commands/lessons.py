"""The command ``lessons``: lists lessons, checks them against the stored results, and writes skeletons of new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.base.errors import LessonError, MergingError
from merging.cli.call import Call
from merging.cli.exit_codes import DONE, FAILED, UsageError
from merging.cli.option_types import PATH
from merging.cli.options import (
    Command,
    OrderedGroup,
    argument,
    device_option,
    job_options,
    option,
    workers_option,
)
from merging.cli.output import encode_json, format_columns, print_warning, report_progress

if TYPE_CHECKING:
    from merging.teaching.lesson import Lesson
    from merging.teaching.lesson_context import LessonContext


@click.group(cls=OrderedGroup, invoke_without_command=True, no_args_is_help=False, subcommand_metavar="[ACTION ...]")
@click.option("--json", is_flag=True, help="print JSON")
@click.pass_context
def lessons(ctx: click.Context, json: bool) -> int | None:
    """List the lessons, check them, or start a new one."""
    ctx.obj.json = ctx.obj.json or json
    return None if ctx.invoked_subcommand is not None else _print_lessons(ctx.obj)


@lessons.command("list", cls=Command)
@click.pass_obj
def list_found_lessons(call: Call) -> int:
    """List every lesson, and every file that cannot be read."""
    return _print_lessons(call)


def _print_lessons(call: Call) -> int:
    from merging.teaching import lesson_files

    refused: list[LessonError] = []
    known_lessons = lesson_files.list_lessons(refused=refused)
    if call.json:
        names = ("key", "title", "question", "minutes", "level", "after")
        rows = [{name: getattr(one, name) for name in names} | {"steps": len(one.steps)} for one in known_lessons]
        print(encode_json({"lessons": rows, "refused": [str(error) for error in refused]}))
    else:
        table = [("key", "title", "minutes", "level", "steps")]
        table += [(one.key, one.title, str(one.minutes), one.level, str(len(one.steps))) for one in known_lessons]
        print(format_columns(table))
        for error in refused:
            print(error)
    return FAILED if refused else DONE


@lessons.command(cls=Command)
@argument("file", type=PATH, required=False, default=None, help="a lesson in YAML (default: every lesson found)")
@option("--compute", is_flag=True, help="compute the runs and measurements that are missing, which takes minutes")
@workers_option
@job_options
@device_option
@click.pass_obj
def check(call: Call, file: Path | None, compute: bool, store: Path | None, device: str) -> int:
    """Check every page, key, run and fact of lessons, and print each text as a learner reads it."""
    from merging.teaching import lesson_files
    from merging.teaching.lesson_check import fill_texts, find_problems

    checked_lessons = [lesson_files.read_lesson(file)] if file is not None else lesson_files.list_lessons()
    if compute:
        _compute_missing(call, [_make_context(lesson, store) for lesson in checked_lessons], device)
    results = []
    for lesson in checked_lessons:
        context = _make_context(lesson, store)
        results.append((lesson, fill_texts(lesson, context), find_problems(lesson, context)))
    if call.json:
        names = ("lesson", "texts", "problems")
        print(
            encode_json([dict(zip(names, (one.key, texts, problems), strict=True)) for one, texts, problems in results])
        )
    else:
        for lesson, texts, problems in results:
            _print_check(lesson, texts, problems)
    return FAILED if any(problems for _, _, problems in results) else DONE


def _print_check(lesson: Lesson, texts: list[tuple[str, str]], problems: list[str]) -> None:
    print(f"{lesson.key}: {lesson.title} ({lesson.minutes} minutes, {len(lesson.steps)} steps)")
    for position, text in texts:
        print(f"  {position}: {text}")
    for problem in problems:
        print(f"  PROBLEM: {problem}")
    print(f"  {len(problems)} problems." if problems else "  No problems.")


def _make_context(lesson: Lesson, store: Path | None) -> LessonContext:
    from merging.base import settings
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.runs.run_store import Store
    from merging.tasks.pack_folders import list_libraries
    from merging.teaching.lesson_context import LessonContext

    benchmark = Benchmark.load()
    libraries = list_libraries(settings.benchmark_folder(), store)
    return LessonContext(Store(store, libraries=libraries, benchmark=benchmark.digest), benchmark, lesson)


def _compute_missing(call: Call, contexts: Sequence[LessonContext], device: str) -> None:
    """Run the recipes of all lessons that have no run, and compute the missing measurements of their facts.

    Raises:
        MergingError: the first error of a run or a measurement, after all others are computed.
    """
    from merging.study.measure_several import RequestedMeasurement, measure_several
    from merging.study.runs.execute_several import RequestedRun, execute_several
    from merging.tasks.workers.pools import open_pool
    from merging.teaching.facts.fact_computation import compute_fact
    from merging.teaching.lesson_check import list_fact_specs

    if not contexts:
        return
    store, benchmark = contexts[0].store, contexts[0].benchmark
    recipes = [context.build_recipe(alias) for context in contexts for alias in context.list_missing_runs()]
    with report_progress(call.events) as progress, open_pool(call.workers, print_warning, device) as pool:
        computation = replace(call.context(progress, device), workers=pool or "")
        run_results = execute_several([*map(RequestedRun, recipes)], store, benchmark=benchmark, context=computation)
        results: list[Any] = [*run_results]
        facts = [
            compute_fact(spec, context)
            for context in map(_renew_context, contexts)
            for spec in list_fact_specs(context.lesson).values()
        ]
        requests = [RequestedMeasurement(fact.measure, fact.run) for fact in facts if fact.measure]
        results += measure_several([*dict.fromkeys(requests)], store, benchmark, context=computation)
    for result in results:
        if isinstance(result, MergingError):
            raise result


def _renew_context(context: LessonContext) -> LessonContext:
    """The context without its cached results, to find runs that were computed meanwhile."""
    from merging.teaching.lesson_context import LessonContext

    return LessonContext(context.store, context.benchmark, context.lesson)


@lessons.command(cls=Command)
@argument("key", help="its key: small letters, digits and underscores")
@option(
    "--to", "folder", type=PATH, metavar="FOLDER", default=Path(), help="folder for the file (default: this folder)"
)
@click.pass_obj
def new(call: Call, key: str, folder: Path) -> int:
    """Write the skeleton of a new lesson."""
    from merging.base.files.records import write_text
    from merging.teaching.lesson_fields import NAME_PATTERN
    from merging.teaching.skeleton import make_skeleton

    path: Path = folder / f"{key}.yaml"
    problems = []
    if not NAME_PATTERN.fullmatch(key):
        problems.append(f"A key is a name of small letters, digits and underscores; got {key[:60]!r}.")
    if not folder.is_dir():
        problems.append(f"There is no folder {folder}. Make it first.")
    elif path.exists():
        problems.append(f"{path} exists already. Choose another key, or delete it.")
    if problems:
        raise UsageError(problems)
    write_text(path, make_skeleton(key))
    facts: dict[str, Any] = {"written": str(path)}
    print(encode_json(facts) if call.json else f"Written to {path}. Then: mergescope lessons check {path}")
    return DONE

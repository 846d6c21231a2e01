"""The options of the command ``published``: the part of an experiment to run, its downloads, the table's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from merging.base.errors import TaskError
from merging.cli.exit_codes import UsageError
from merging.cli.option_types import PATH
from merging.cli.options import argument, option, option_group

MEGABYTE = 1e6
TABLE_SUFFIXES = (".md", ".csv", ".json")


def _read_choice(key: str, rows: str, tasks: str, **settings: Any) -> dict[str, Any]:
    from merging.sharing.published.choice import make_choice, narrow_experiment
    from merging.sharing.published.experiment_catalogue import read_experiment

    try:
        experiment = read_experiment(key)
        choice = make_choice(experiment, rows=_split_keys(rows), tasks=_split_keys(tasks), **settings)
    except TaskError as error:
        raise UsageError([str(error)]) from None
    return {"experiment": narrow_experiment(experiment, choice), "choice": choice}


def _split_keys(text: str) -> list[str]:
    return [key.strip() for key in text.split(",") if key.strip()]


choice_options = option_group(  # the part of an experiment to run; the command gets ``experiment`` and ``choice``
    _read_choice,
    argument("key", help="the key of an experiment; `published` lists them"),
    option("--images", default="1000", show_default=True, metavar="N", help="images of each test set, or all"),
    option("--ood", "outside", is_flag=True, help="also score the test sets out of domain"),
    option("--imagenet/--no-imagenet", default=False, help="whether ImageNet is among them (default: no)"),
    option("--rows", default="", metavar="KEY,...", help="rows of the table (default: all rows without exemplars)"),
    option(
        "--tasks", default="", metavar="KEY,...", help="only these tasks; the papers' averages are then not compared"
    ),
    option("--wording", default="clip", help="class names out of domain: clip, or hub as FusionBench writes them"),
    option("--experts", metavar="WHOSE", help="hub, published, or a folder of the papers' experts"),
    option(
        "--exemplars", type=int, is_flag=False, flag_value=64, default=0, metavar="[N]",
        help="training images of each task for rows that need some (64); train splits are fetched only then",
    ),
    option("--seed", type=int, default=0, show_default=True, help="the seed with which images are sampled"),
    names=("key", "rows", "tasks", "images", "outside", "imagenet", "experts", "exemplars", "seed", "wording"),
)  # fmt: skip


def _check_table_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix not in TABLE_SUFFIXES:
        raise UsageError([f"A table is written to a file that ends in {', '.join(TABLE_SUFFIXES)}; got {value.name}."])
    return value


to_option = option(
    "--to",
    "table_file",
    type=PATH,
    callback=_check_table_file,
    metavar="FILE",
    help="write the table: .md, .csv or .json",
)
pack_option = option("--pack", type=PATH, metavar="FILE", help="also write the runs to a pack, such as results.msc")
expect_option = option("--expect", type=click.Choice(["reproduced"]), help="exit with 1 if a judged row differs")
into_option = option(
    "--into", "separate_cache", type=PATH, metavar="FOLDER", help="a separate cache, to take to another machine"
)
from_option = option(
    "--from", "separate_cache", type=PATH, metavar="FOLDER", help="a folder that `fetch --into` has written"
)


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The settings of downloads.

    With ``yes`` the user is not asked. ``latest`` fetches newer commits than the pinned ones, ``revisions`` are
    {repository: revision to fetch}, and ``megabytes_per_second`` is the maximal rate.
    """

    yes: bool
    latest: bool
    revisions: Mapping[str, str]
    megabytes_per_second: float | None

    @property
    def bytes_per_second(self) -> float | None:
        """The maximal rate in bytes per second."""
        return None if self.megabytes_per_second is None else self.megabytes_per_second * MEGABYTE


def _parse_revisions(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """{repository: revision}."""
    problems = [
        f"--revision is REPOSITORY=REVISION; got {value!r}." for value in values if not all(_split_revision(value))
    ]
    if problems:
        raise UsageError(problems)
    return dict(map(_split_revision, values))


def _split_revision(value: str) -> tuple[str, str]:
    repository, _, revision = value.partition("=")
    return repository.strip(), revision.strip()


def _make_fetch_settings(
    yes: bool, latest: bool, revisions: Mapping[str, str], limit_rate: float | None
) -> dict[str, Any]:
    return {"fetch_settings": FetchSettings(yes, latest, revisions, limit_rate)}


fetch_options = option_group(  # the settings of downloads; the command gets ``fetch_settings``
    _make_fetch_settings,
    option("--yes", is_flag=True, help="do not ask"),
    option("--latest", is_flag=True, help="take newer commits than the pinned ones"),
    option(
        "--revision", "revisions", multiple=True, callback=_parse_revisions, metavar="REPOSITORY=REVISION",
        help="take a repository at this branch, tag or commit, and pin that; repeatable",
    ),
    option(
        "--limit-rate", type=click.FloatRange(min=0, min_open=True), metavar="MB/S", help="maximal megabytes per second"
    ),
)  # fmt: skip

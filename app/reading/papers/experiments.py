"""Published experiments as pages show them: what they cost, whether this server may fetch them, and their tables."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from app.reading import data
from app.session import benchmark
from merging.base.errors import MergingError
from merging.models.hub import client

if TYPE_CHECKING:
    from merging.sharing.published.catalogue import Experiment
    from merging.sharing.published.choice import Choice
    from merging.sharing.published.experiment_run import Place
    from merging.sharing.published.plan import FetchPlan
    from merging.sharing.published.table import PublishedTable


@lru_cache(maxsize=1)
def all_experiments() -> tuple[Experiment, ...]:
    """Every experiment of the catalogue, in its order."""
    from merging.sharing.published.catalogue import experiments

    return experiments()


def place(chosen: Experiment) -> Place:
    """Where an experiment's own files are in this store."""
    from merging.sharing.published.experiment_run import place_of

    return place_of(chosen.key, data.store().root)


def plan(chosen: Experiment, choice: Choice) -> FetchPlan:
    """What a choice would fetch and cost on the device that jobs compute on; no network is asked."""
    from merging.base.devices import choose_device
    from merging.sharing.published import steps

    return steps.plan(chosen, choice, place(chosen), choose_device(data.runner().device).type)


def host() -> str:
    """The host of the Hub."""
    return client.host()


def setting() -> str:
    """The value of MERGESCOPE_HUB that forbids this server to download; empty if it may."""
    return client.switched_off()


def kept_choice(chosen: Experiment) -> Choice | None:
    """What was chosen when the experiment ran here last; None if it has not run."""
    from merging.sharing.published import steps

    try:
        return steps.kept_choice(place(chosen))
    except MergingError:
        return None


def measured_choice(chosen: Experiment) -> Choice | None:
    """What was chosen when the rows here were measured; None before the first.

    Raises:
        TaskError: what was measured cannot be read.
    """
    from merging.sharing.published import measured_rows

    return measured_rows.measured_choice(place(chosen).folder)


def table(chosen: Experiment) -> PublishedTable | None:
    """The table of what was computed so far, as what it was computed; None before the first row.

    Raises:
        TaskError: what was computed cannot be read.
    """
    from merging.sharing.published import steps

    if kept_choice(chosen) is None or measured_choice(chosen) is None:
        return None
    return steps.kept_table(chosen, place(chosen))


def is_computed(chosen: Experiment, choice: Choice) -> bool:
    """Whether the table has every row of a choice."""
    from merging.sharing.published.rows import INDIVIDUAL, PRETRAINED, variants

    if measured_choice(chosen) != choice or (made := table(chosen)) is None:
        return False
    needed = {PRETRAINED, INDIVIDUAL, *(variant.key for variant in variants(chosen, choice))}
    return needed <= {row.key for row in made.rows}


def read_cards(chosen: Experiment, choice: Choice) -> None:
    """Ask the Hub for the commits, licenses and sizes of what a choice needs; they are kept for the next plan.

    Raises:
        HubError: in one sentence what is wrong and what to do.
    """
    from merging.sharing.published import steps

    steps.pin(chosen, choice, place(chosen))


def benchmark_key(chosen: Experiment) -> str:
    """The key of an experiment's benchmark; empty if it is not made yet."""
    return benchmark.name_of(place(chosen).benchmark) if (place(chosen).benchmark / "tasks.json").is_file() else ""


def opened() -> Experiment | None:
    """The experiment whose benchmark this session works on; None for other benchmarks."""
    folder = benchmark.folder()
    return next((one for one in all_experiments() if place(one).benchmark == folder), None)

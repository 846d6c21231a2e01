"""Published experiments as pages show them: costs, permission to download, and tables.

An experiment is a paper's table that can be computed again from checkpoints on the Hub (Hugging Face). A choice is the
part of it that the user runs: rows, tasks and numbers of images. A variant is one merge of the table.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from app.reading import page_data
from app.session import benchmark_choice
from merging.base.errors import MergingError

if TYPE_CHECKING:
    from merging.sharing.published.choice import Choice
    from merging.sharing.published.comparison_table import PublishedTable
    from merging.sharing.published.experiment_catalogue import Experiment
    from merging.sharing.published.experiment_run import ExperimentFolders
    from merging.sharing.published.fetch_plan import FetchPlan


@lru_cache(maxsize=1)
def all_experiments() -> tuple[Experiment, ...]:
    """Every experiment of the catalogue, in its order."""
    from merging.sharing.published.experiment_catalogue import list_experiments

    return list_experiments()


def experiment_folder(experiment: Experiment) -> ExperimentFolders:
    """Where an experiment's own files are in this store."""
    from merging.sharing.published.experiment_run import find_folders

    return find_folders(experiment.key, page_data.store().root)


def fetch_plan(experiment: Experiment, choice: Choice) -> FetchPlan:
    """The downloads and costs of a choice on the device of jobs, without a network request."""
    from merging.base.devices import choose_device
    from merging.sharing.published import experiment_steps

    return experiment_steps.make_choice_plan(
        experiment, choice, experiment_folder(experiment), choose_device(page_data.job_queue().device).type
    )


def last_choice(experiment: Experiment) -> Choice | None:
    """The choice of the experiment's last run on this machine; None if it has not run."""
    from merging.sharing.published import experiment_steps

    try:
        return experiment_steps.read_choice(experiment_folder(experiment))
    except MergingError:
        return None


def measured_choice(experiment: Experiment) -> Choice | None:
    """The choice with which the stored rows were measured; None before the first row.

    Raises:
        TaskError: the stored rows cannot be read.
    """
    from merging.sharing.published import measured_rows

    return measured_rows.read_measured_choice(experiment_folder(experiment).folder)


def computed_table(experiment: Experiment) -> PublishedTable | None:
    """The table of the rows computed so far; None before the first row.

    Raises:
        TaskError: the stored rows cannot be read.
    """
    from merging.sharing.published import experiment_steps

    if last_choice(experiment) is None or measured_choice(experiment) is None:
        return None
    return experiment_steps.read_published_table(experiment, experiment_folder(experiment))


def is_computed(experiment: Experiment, choice: Choice) -> bool:
    """Whether the table has every row of a choice."""
    from merging.sharing.published.row_variants import INDIVIDUAL, PRETRAINED, list_variants

    if measured_choice(experiment) != choice or (table := computed_table(experiment)) is None:
        return False
    needed = {PRETRAINED, INDIVIDUAL, *(variant.key for variant in list_variants(experiment, choice))}
    return needed <= {row.key for row in table.rows}


def read_cards(experiment: Experiment, choice: Choice) -> None:
    """Ask the Hub for commits, licenses and sizes of the files of a choice, and store them for the next plan.

    Raises:
        HubError: the Hub does not answer or refuses; the text is one sentence with the problem and the remedy.
    """
    from merging.sharing.published import experiment_steps

    experiment_steps.pin_repositories(experiment, choice, experiment_folder(experiment))


def benchmark_key(experiment: Experiment) -> str:
    """The key of an experiment's benchmark; empty if it does not exist yet."""
    folder = experiment_folder(experiment).benchmark_folder
    return benchmark_choice.find_key(folder) if (folder / "tasks.json").is_file() else ""


def open_experiment() -> Experiment | None:
    """The experiment whose benchmark this session works on; None for other benchmarks."""
    folder = benchmark_choice.benchmark_folder()
    return next(
        (experiment for experiment in all_experiments() if experiment_folder(experiment).benchmark_folder == folder),
        None,
    )

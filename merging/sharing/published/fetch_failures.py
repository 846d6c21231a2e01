"""The consequences of a failed download for an experiment: the missing parts, and the runs that are still possible."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from merging.base.errors import HubError
from merging.base.text import first_few, size_text
from merging.sharing.published.catalogue_parts import TEST, TRAIN, ModelFile
from merging.sharing.published.choice import find_models, list_needed_parts, list_test_sets, needs_exemplars
from merging.sharing.published.experiment_run import ExperimentRun
from merging.sharing.published.fetch_plan import FetchPlan, PlannedPart

IMAGENET = "imagenet"
OTHER_MACHINE_HINT = "published fetch {key} --into FOLDER`; then on this machine `published run {key} --from FOLDER"
NO_CONNECTION_PATTERN = re.compile(r"has no connection to \S+ \((\w+)\)")
ModelFiles = Collection[ModelFile]


def explain_failure(error: HubError, run: ExperimentRun, plan: FetchPlan) -> HubError:
    """The error with its consequences for the experiment; ``plan`` is the plan of the run."""
    parts_by_file = dict(zip(list_needed_parts(run.experiment, run.choice), plan.parts, strict=True))
    if error.reason in {"connection", "setting"}:
        text = _describe_missing_downloads(error, run, plan)
        missing = {use for use, part in parts_by_file.items() if not part.is_complete}
    elif error.reason in {"access", "missing"}:
        text = str(error)
        missing = {use for use in parts_by_file if re.search(rf"{re.escape(use.repository)}(?![\w./-]*\w)", text)}
    else:
        return error
    return HubError(" ".join((text, *_describe_possible_runs(run, parts_by_file, missing))), error.reason, error.later)


def _describe_missing_downloads(error: HubError, run: ExperimentRun, plan: FetchPlan) -> str:
    """The missing downloads, why they fail, and the commands that fetch them on another machine."""
    missing = first_few(part.purpose for part in plan.parts if not part.is_complete)
    about = "" if plan.has_exact_sizes else "about "
    needs = f"{run.experiment.key} needs {about}{size_text(plan.bytes_to_fetch)} from {plan.host} ({missing})"
    commands = OTHER_MACHINE_HINT.format(key=run.experiment.key)
    if match := NO_CONNECTION_PATTERN.search(str(error)):
        return f"{needs}, and this machine has no connection ({match[1]}). On another machine: `{commands}`."
    return f"{needs}. {error} Or on another machine: `{commands}`."


def _describe_possible_runs(
    run: ExperimentRun, parts_by_file: Mapping[ModelFile, PlannedPart], missing: ModelFiles
) -> list[str]:
    """The options with which the command can run without the missing parts; empty if there are none."""
    experiment, choice, models = run.experiment, run.choice, find_models(run.experiment, run.choice)
    out_of_domain = [one for one in list_test_sets(experiment, choice) if one not in experiment.tasks]

    def lacks(repository: str, *parts: str) -> bool:
        return any(use.repository == repository and use.part in parts for use in missing)

    complete_tasks = [
        one.key
        for one in experiment.tasks
        if not lacks(one.repository, TEST) and _drop_path(models.experts[one.key]) not in missing
    ]
    options = []
    if any(lacks(one.repository, TEST) for one in out_of_domain if one.key == IMAGENET):
        options.append("`--no-imagenet`")
    elif any(lacks(one.repository, TEST) for one in out_of_domain):
        options.append("no `--ood`")
    if any(use.part == TRAIN for use in missing):
        row_keys = [row.key for row in experiment.rows if row.key in choice.rows and not needs_exemplars(row)]
        options += [f"`--rows {','.join(row_keys)}`"] if row_keys else []
    if 0 < len(complete_tasks) < len(experiment.tasks):
        options.append(f"`--tasks {','.join(complete_tasks)}`")
    base_files = {_drop_path(use) for use in (models.pretrained, *([models.text] if models.text else []))}
    if not complete_tasks or not options or base_files & set(missing):
        return []
    return [f"With the files that are available, use {' and '.join(options)}."]


def _drop_path(use: ModelFile) -> ModelFile:
    """The part of a repository that contains a model, without the path in that part."""
    return ModelFile(use.repository, use.part)

"""The part of an experiment that is run: number of images, test sets, rows and experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from merging.base.errors import TaskError
from merging.base.text import did_you_mean, printable
from merging.images.prompt_sets import CLIP, WORDINGS
from merging.recipes.papers.published_figures import ILHARCO
from merging.recipes.presets import find_preset
from merging.sharing.published.catalogue_fields import CatalogueFields
from merging.sharing.published.catalogue_parts import TEST, TRAIN, ListedRow, ModelFile, PublishedModels, PublishedSet
from merging.sharing.published.experiment_catalogue import HUB, PUBLISHED, Experiment

DEFAULT_IMAGES, DEFAULT_EXEMPLARS, DEFAULT_SEED = 1000, 64, 0
ALL_IMAGES = "all"
MAX_IMAGES, MAX_EXEMPLARS = 1_000_000, 100_000
FOLDER_NOTE = (
    "The origin of these experts is unknown: they are compared with the papers' only if the accuracy of each on its "
    "own task is the printed one."
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The part of an experiment that a user has chosen to run.

    ``rows`` are the keys of the table's rows. ``experts`` is HUB, PUBLISHED, or the path of a folder. ``images`` is the
    number of images of each test set, which are sampled once with ``seed`` and the same for every row; None uses all.
    ``outside`` adds the test sets out of domain, ``imagenet`` also ImageNet. ``exemplars`` is the number of training
    images of each task; if it is 0, rows that need exemplars are skipped. ``tasks`` are keys of tasks in domain; empty
    uses all. ``wording`` names the source of the class names of the test sets out of domain.
    """

    rows: tuple[str, ...]
    experts: str
    images: int | None = DEFAULT_IMAGES
    outside: bool = False
    imagenet: bool = False
    exemplars: int = 0
    seed: int = DEFAULT_SEED
    tasks: tuple[str, ...] = ()
    wording: str = CLIP

    @property
    def images_text(self) -> str:
        """'all images', or 'on 1,000 of each'."""
        return "on all images" if self.images is None else f"on {self.images:,} of each"

    def to_plain(self) -> dict[str, Any]:
        """As plain data, which ``from_plain`` reads."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self._items()}

    def _items(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__slots__]

    @classmethod
    def from_plain(cls, data: Any, location: str) -> Self:
        """The choice in plain data. Raises TaskError if the data are not a choice."""
        entry = CatalogueFields(data, location)
        choice = cls(
            rows=entry.read_texts("rows"),
            experts=entry.read_text("experts"),
            images=entry.read_optional_count("images"),
            outside=entry.read_choice("outside", (True, False)),
            imagenet=entry.read_choice("imagenet", (True, False)),
            exemplars=entry.read_count("exemplars"),
            seed=entry.read_count("seed"),
            tasks=entry.read_texts("tasks"),
            wording=entry.read_choice("wording", WORDINGS),
        )
        entry.refuse_unknown()
        return choice


def make_choice(
    experiment: Experiment,
    *,
    images: str = str(DEFAULT_IMAGES),
    outside: bool = False,
    imagenet: bool = False,
    rows: Sequence[str] = (),
    experts: str | None = None,
    exemplars: int = 0,
    seed: int = DEFAULT_SEED,
    tasks: Sequence[str] = (),
    wording: str = CLIP,
) -> Choice:
    """The choice that these options describe.

    ``images`` is a number or "all". Rows that need exemplars are included if they are named or ``exemplars`` is set.
    Without ``experts``, the experiment's first experts are merged.

    Raises:
        TaskError: an option is invalid, or names a row, task or experts that the experiment lacks.
    """
    rows_by_key, task_keys = {row.key: row for row in experiment.rows}, [one.key for one in experiment.tasks]
    for kind, requested_keys, known_keys in (("row", rows, list(rows_by_key)), ("task", tasks, task_keys)):
        for key in requested_keys:
            if key not in known_keys:
                hint = did_you_mean(key, known_keys)
                raise TaskError(f"{experiment.key} has no {kind} {key[:40]!r}.{hint} {', '.join(known_keys)}.")
    if wording not in WORDINGS:
        raise TaskError(
            f"The wording is {' or '.join(WORDINGS)}; got {wording[:40]!r}.{did_you_mean(wording, WORDINGS)}"
        )
    chosen_rows = [rows_by_key[key] for key in rows] or [
        row for row in experiment.rows if exemplars or not needs_exemplars(row)
    ]
    if any(map(needs_exemplars, chosen_rows)):
        exemplars = exemplars or DEFAULT_EXEMPLARS
    if not 0 <= exemplars <= MAX_EXEMPLARS:
        raise TaskError(f"The number of exemplars is from 0 to {MAX_EXEMPLARS:,}; got {exemplars:,}.")
    if seed < 0:
        raise TaskError(f"A seed is a whole number, at least 0; got {seed}.")
    if imagenet and "imagenet" not in {one.key for one in experiment.outside}:
        raise TaskError(f"{experiment.key} has no ImageNet among its test sets.")
    return Choice(
        rows=tuple(row.key for row in chosen_rows),
        experts=_resolve_experts(experiment, next(iter(experiment.models)) if experts is None else experts),
        images=_parse_image_count(images),
        outside=outside or imagenet,
        imagenet=imagenet,
        exemplars=exemplars,
        seed=seed,
        tasks=tuple(key for key in task_keys if key in tasks) if set(tasks) != set(task_keys) else (),
        wording=wording,
    )


def _resolve_experts(experiment: Experiment, experts: str) -> str:
    """HUB or PUBLISHED, or the absolute path of a folder."""
    if experts in experiment.models:
        return experts
    if experts in (HUB, PUBLISHED):
        raise TaskError(f"{experiment.key} has no experts {experts!r}; it has {', '.join(experiment.models)}.")
    if not experts.strip():  # an empty path would be the working folder
        raise TaskError(f"Experts are {HUB}, {PUBLISHED} or a folder; the name of the folder is empty.")
    if not Path(experts).is_dir():
        hint = did_you_mean(experts, (HUB, PUBLISHED))
        raise TaskError(f"Experts are {HUB}, {PUBLISHED} or a folder; there is no folder {experts!r}.{hint}")
    return str(Path(experts).resolve())


def narrow_experiment(experiment: Experiment, choice: Choice) -> Experiment:
    """The experiment with only the tasks of a choice.

    For experts in a folder, the result lacks the printed accuracies, which belong to the files of their source.
    """
    if uses_own_folder(experiment, choice):
        experiment = replace(experiment, printed=None)
    if not choice.tasks:
        return experiment
    printed = experiment.printed
    if printed is not None:
        printed_accuracies = [
            {key: values[key] for key in choice.tasks} for values in (printed.pretrained, printed.experts)
        ]
        printed = replace(printed, pretrained=printed_accuracies[0], experts=printed_accuracies[1])
    tasks = tuple(one for one in experiment.tasks if one.key in choice.tasks)
    return replace(experiment, tasks=tasks, printed=printed)


def _parse_image_count(text: str) -> int | None:
    if text == ALL_IMAGES:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= MAX_IMAGES:
        raise TaskError(
            f"The images of each test set are a number from 1 to {MAX_IMAGES:,}, or {ALL_IMAGES}; got {text!r}."
        )
    return int(text)


def needs_exemplars(row: ListedRow) -> bool:
    """Whether a row's chain uses training images."""
    return find_preset(row.preset).recipe("", {}).exemplars is not None


def list_left_out_rows(experiment: Experiment, choice: Choice) -> tuple[str, ...]:
    """Keys of the experiment's rows that are skipped because they need exemplars."""
    return tuple(row.key for row in experiment.rows if row.key not in choice.rows and needs_exemplars(row))


def uses_own_folder(experiment: Experiment, choice: Choice) -> bool:
    """Whether the pretrained model and the experts are in a folder of the user."""
    return choice.experts not in experiment.models


def find_models(experiment: Experiment, choice: Choice) -> PublishedModels:
    """The models of a choice. Models in a folder are compared with the papers' models, whose layout they have;
    their authors are unknown, as the note says.
    """
    if not uses_own_folder(experiment, choice):
        return experiment.models[choice.experts]
    paper_models = experiment.models.get(PUBLISHED) or next(iter(experiment.models.values()))
    name = printable(Path(choice.experts).name)
    return replace(paper_models, title=f"experts in the folder {name}", authors=ILHARCO, note=FOLDER_NOTE)


def list_test_sets(experiment: Experiment, choice: Choice) -> tuple[PublishedSet, ...]:
    """The test sets of a choice: those in domain, then the chosen ones out of domain."""
    skipped = () if choice.imagenet else experiment.off_by_default
    return experiment.tasks + tuple(one for one in experiment.outside if choice.outside and one.key not in skipped)


def list_needed_parts(experiment: Experiment, choice: Choice) -> Mapping[ModelFile, str]:
    """{needed part of a repository: its purpose}, models before test sets."""
    models = find_models(experiment, choice)
    parts: dict[ModelFile, str] = {}
    if not uses_own_folder(experiment, choice):
        files_by_purpose = {"pretrained": models.pretrained} | ({"text tower": models.text} if models.text else {})
        files_by_purpose |= {f"expert for {one.title}": models.experts[one.key] for one in experiment.tasks}
    else:  # a folder has its own pretrained model and experts
        files_by_purpose = {"text tower": models.text or models.pretrained}
    for purpose, model_file in files_by_purpose.items():
        parts.setdefault(ModelFile(model_file.repository, model_file.part), purpose)
    for one in list_test_sets(experiment, choice):
        parts[ModelFile(one.repository, TEST)] = f"test set {one.title}"
    for one in experiment.tasks if choice.exemplars else ():
        if one.exemplars:
            parts[ModelFile(one.repository, TRAIN)] = f"exemplars of {one.title}"
    return parts

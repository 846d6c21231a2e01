"""The description of a benchmark to be made: a YAML file or plain data, every key checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from merging.base.errors import CheckpointError, RecipeError, TaskError
from merging.base.files.plain_yaml import read_plain_yaml
from merging.base.text import did_you_mean, first_few, printable
from merging.images.benchmarks.benchmark import MULTITASK
from merging.images.benchmarks.build.class_names import ClassNames
from merging.images.data_sets.class_list import read_names_text, split_lines
from merging.images.prompt_sets import CLIP, WORDINGS, list_prompt_keys
from merging.models.families import ACTIVATIONS
from merging.models.formats.model_sources import ModelRef
from merging.models.formats.named_architecture import named_architecture
from merging.models.model_references import PRETRAINED, locate
from merging.models.stated_architecture import StatedArchitecture

TASK_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
# Names with a meaning of their own among a benchmark's models, or among the tensors of its heads.
RESERVED_KEYS = ("pretrained", "multitask", "logit_scale", "class_embedding")
MAX_IMAGES = 1_000_000
ALL_IMAGES = "all"  # may replace a number of images


@dataclass(frozen=True)
class TaskSource:
    """A data set: where its images are, the names of its classes, its head and its expert.

    Paths are relative to the description's folder. Without ``expert`` it is out of domain for every merge.
    """

    key: str
    images: str
    expert: str | None = None
    head: str | None = None  # path of a released head; None builds one
    prompts: str | None = None  # key of the class names and templates of a data set of the papers (``prompt_sets``)
    wording: str = CLIP  # whose class names those prompts get: CLIP's authors' or the Hub's
    templates: tuple[str, ...] = ()
    classes: ClassNames | str = None  # names, a mapping, or a file with either
    image_column: str | None = None
    label_column: str | None = None
    configuration: str | None = None  # which one, if the data set has several
    test_split: str | None = None  # the split to test on, as the data set names it
    title: str = ""
    source: str = ""
    license: str = ""


@dataclass(frozen=True)
class Description:
    """A benchmark to be made. A test set is cut in halves, one to choose values on and one to report on.

    ``images`` limits the images of each half, ``exemplars`` the training images; 0 takes all.

    With ``whole``, all of a test set is for reporting, or ``images`` of it. ``balanced`` samples equally from all
    classes. ``by_reference`` leaves images in the data sets' files and decodes them on demand; ``models_by_reference``
    leaves models in their files. ``licenses`` are {name of a model or data set: its license}.
    """

    pretrained: str
    tasks: tuple[TaskSource, ...]
    text: str | None = None  # the model with the text tower; default: the pretrained model
    multitask: str | None = None
    activation: str = ""  # of all models and the text tower; empty: as their files state
    architecture: str = ""  # fields that their files do not state, in the form of ``StatedArchitecture.text``
    images: int = 250
    exemplars: int = 96
    seed: int = 0
    balanced: bool = False
    whole: bool = False
    by_reference: bool = False
    models_by_reference: bool = False
    licenses: Mapping[str, str] = field(default_factory=dict)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    base: Path = Path()

    @classmethod
    def load(cls, path: Path) -> Self:
        """The description in a YAML file; raises TaskError if the file is not a description."""
        try:
            return cls.from_plain(read_plain_yaml(path.read_text("utf-8"), "file"), path.absolute().parent)
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"{path.name} cannot be read: {error}") from None
        except (RecipeError, TaskError, CheckpointError) as error:
            raise TaskError(f"{path.name}: {error}") from None

    @classmethod
    def from_plain(cls, data: Any, base: Path) -> Self:
        """The description in plain data.

        Raises:
            TaskError: a key is unknown, or a value is of the wrong kind.
            CheckpointError: the architecture is unknown.
        """
        if not isinstance(data, Mapping):
            raise TaskError("A description is a mapping with `pretrained` and `tasks`.")
        options = _check_options(data, cls, without=("base",), needed=("pretrained", "tasks"), where="the description")
        if not isinstance(options["tasks"], Mapping) or not options["tasks"]:
            raise TaskError("`tasks` is a mapping from names to data sets, with at least one.")
        options["tasks"] = tuple(_parse_task(str(key), entry) for key, entry in options["tasks"].items())
        _check_numbers(options)
        for name in ("mean", "std"):
            if name in options:
                options[name] = _parse_colors(options[name], name)
        for name in ("pretrained", "text", "multitask"):
            _check_text(options.get(name), name)
        licenses = options.get("licenses", {})
        if not isinstance(licenses, Mapping) or not all(map(_is_text, (*licenses, *licenses.values()))):
            raise TaskError("`licenses` is a mapping from names of models and data sets to texts.")
        if (activation := options.get("activation", "")) not in ("", *ACTIVATIONS):
            raise TaskError(f"`activation` is {' or '.join(ACTIVATIONS)}; got {printable(repr(activation), 60)}.")
        if "architecture" in options:
            _check_text(options["architecture"], "architecture")
            options["architecture"] = named_architecture(options["architecture"], base).text()
        return cls(**options, base=base)

    def resolve_path(self, text: str) -> Path:
        """The path that ``text`` means, relative to the description's folder."""
        return locate(text, self.base)

    def models(self) -> dict[str, ModelRef]:
        """{"pretrained": model, task: its expert}, and "multitask" if there is one."""
        references = {
            PRETRAINED: self.pretrained,
            **{task.key: task.expert for task in self.tasks},
            MULTITASK: self.multitask,
        }
        return {name: ModelRef(text, self.base) for name, text in references.items() if text}

    @property
    def stated(self) -> StatedArchitecture:
        """The architecture that the description states where the models' files do not."""
        return StatedArchitecture.parse(self.architecture)


def _check_numbers(options: dict[str, Any]) -> None:
    """Raise TaskError for amounts that are not numbers and choices that are not booleans; "all" becomes 0."""
    for name in ("images", "exemplars"):
        if options.get(name) == ALL_IMAGES:
            options[name] = 0
    for name in ("balanced", "whole", "by_reference", "models_by_reference"):
        if not isinstance(options.get(name, False), bool):
            raise TaskError(f"`{name}` is true or false; got {printable(repr(options[name]), 60)}.")
    for name in ("images", "exemplars", "seed"):
        value = options.get(name, 0)
        if type(value) is not int or not 0 <= value <= MAX_IMAGES:
            raise TaskError(f"`{name}` is a whole number from 0 to {MAX_IMAGES:,}; got {value!r}.")


def _parse_task(key: str, entry: Any) -> TaskSource:
    if not TASK_KEY.fullmatch(key) or key in RESERVED_KEYS:
        raise TaskError(
            f"{printable(key, 60)!r} cannot name a task: lowercase letters, digits, - and _, not {RESERVED_KEYS[0]!r}."
        )
    if isinstance(entry, str):
        entry = {"images": entry}
    if not isinstance(entry, Mapping):
        raise TaskError(f"Task {key!r} is a mapping with `images`, or the path of the images.")
    owner = f"task {key!r}"
    options = _check_options(entry, TaskSource, without=("key",), needed=("images",), where=owner)
    for name in set(options) - {"classes", "templates"}:
        _check_text(options[name], f"{name} of {owner}")
    if "templates" in options:
        options["templates"] = _parse_texts(options["templates"], f"templates of {owner}")
    classes = options.get("classes")
    if isinstance(classes, Mapping):
        options["classes"] = {str(label): str(name) for label, name in classes.items()}
    elif classes is not None and not isinstance(classes, str):
        options["classes"] = _parse_texts(classes, f"classes of {owner}")
    if (prompts_key := options.get("prompts")) is not None and prompts_key not in list_prompt_keys():
        hint = did_you_mean(prompts_key, list_prompt_keys())
        raise TaskError(
            f"There are no prompts called {prompts_key!r}.{hint} There are: {', '.join(list_prompt_keys())}."
        )
    _check_wording(options, owner)
    return TaskSource(key, **options)


def _check_wording(options: Mapping[str, Any], owner: str) -> None:
    """Raise TaskError if the wording is unknown, or has no prompts to apply to."""
    wording = options.get("wording", CLIP)
    if wording not in WORDINGS:
        hint = did_you_mean(wording, WORDINGS)
        raise TaskError(f"wording of {owner} is {' or '.join(WORDINGS)}; got {printable(repr(wording), 60)}.{hint}")
    if wording != CLIP and options.get("prompts") is None:
        raise TaskError(f"wording of {owner} needs `prompts`: it states who wrote their class names.")


def _check_options(
    data: Mapping[Any, Any], kind: type[Any], *, without: Iterable[str], needed: Iterable[str], where: str
) -> dict[str, Any]:
    """The entries that are not None; raises TaskError for unknown and missing entries."""
    allowed = [field.name for field in fields(kind) if field.name not in without]
    for name in data:
        if name not in allowed:
            hint = did_you_mean(str(name), allowed)
            raise TaskError(f"{where} has no {printable(str(name), 40)!r}.{hint} It takes {', '.join(allowed)}.")
    if missing := [name for name in needed if data.get(name) is None]:
        raise TaskError(f"{where} lacks {first_few(missing)}.")
    return {str(name): value for name, value in data.items() if value is not None}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _check_text(value: Any, name: str) -> None:
    if value is not None and (not isinstance(value, str) or not value or len(value) > 4096 or "\0" in value):
        raise TaskError(f"{name} is a string; got {printable(repr(value), 60)}.")


def _parse_texts(value: Any, name: str) -> tuple[str, ...]:
    """A list of strings; whole numbers, which YAML reads from unquoted digits, become strings."""
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) or type(v) is int for v in value) or not value:
        raise TaskError(f"{name} is a list of strings; got {printable(repr(value), 60)}.")
    return tuple(map(str, value))


def _parse_colors(value: Any, name: str) -> tuple[float, ...]:
    numbers = tuple(value) if isinstance(value, list | tuple) else ()
    minimum = 1e-6 if name == "std" else -100.0
    if len(numbers) != 3 or not all(type(v) in {int, float} and minimum < v < 100 for v in numbers):
        raise TaskError(f"`{name}` is three numbers, one for each color; got {printable(repr(value), 60)}.")
    return tuple(map(float, numbers))


def read_classes(path: Path) -> ClassNames:
    """Class names from a file: one per line, in the order of labels, or YAML or JSON with a list or a mapping.

    Raises:
        TaskError: the file cannot be read, or holds something else.
    """
    text = read_names_text(path)
    if path.suffix.casefold() not in {".yaml", ".yml", ".json"}:
        return split_lines(text)
    try:
        content = read_plain_yaml(text, "file")
    except RecipeError as error:
        raise TaskError(f"{path.name}: {error}") from None
    if isinstance(content, Mapping):
        return {str(label): str(name) for label, name in content.items()}
    return _parse_texts(content, path.name)

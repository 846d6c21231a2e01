"""The pretrained model and the experts of one folder, and the skipped files with the reasons.

The groups of the catalog decide which models belong together. If they leave a choice, these rules decide. A linearized
model (``linear_finetuned.pt``) is skipped if the model from which it was made is in the same folder. Of several
checkpoints in an expert's folder, ``finetuned.pt`` is used. Any other choice is refused with a list of the candidates.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from merging.base.errors import CheckpointError
from merging.base.text import did_you_mean, first_few, printable
from merging.sharing.catalog import model_listing
from merging.sharing.catalog.model_groups import (
    PRETRAINED_NAME,
    VALIDATION_SUFFIX,
    ModelGroup,
    RecognizedEntry,
    find_groups,
)
from merging.sharing.catalog.model_listing import CatalogEntry, Listing
from merging.sharing.catalog.model_recognition import ADAPTER, HEAD, MODEL, recognize_model

LINEARIZED_NAME = re.compile(r"linear[-_].+", re.I)
FINETUNED_FILE = re.compile(r"(?:nonlinear[-_])?fine-?tuned", re.I)
MAX_NAMED = 20  # files or models that a sentence names
NOT_CHOSEN_REASON = "not chosen"


@dataclass(frozen=True)
class ModelLayout:
    """References to the pretrained model and the experts by name; ``left_out`` is {reason: listed paths}."""

    title: str
    kind: str
    pretrained: str
    experts: Mapping[str, str]
    is_guessed: bool
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def describe(self) -> list[str]:
        """The used and the skipped models, in sentences."""
        origin = ", recognized by its weights, not by its name" if self.is_guessed else ""
        experts = ", ".join(f"{printable(n)} ({_shorten_path(reference)})" for n, reference in self.experts.items())
        return [
            f"{printable(self.title)}: {self.kind}. The pretrained model is {_shorten_path(self.pretrained)}{origin}.",
            f"Experts: {experts}.",
            *(
                f"Left out, {reason}: {first_few(listed_paths, MAX_NAMED)}."
                for reason, listed_paths in self.left_out.items()
            ),
        ]


def _shorten_path(reference: str) -> str:
    """The last parts of a path, enough to recognize the file in its folder."""
    return printable("/".join(Path(reference).parts[-2:]))


def read_layout(
    folder: str, expert_names: Sequence[str] = (), pretrained: str = "", known_names: Collection[str] = ()
) -> ModelLayout:
    """The models in a folder: the experts ``expert_names``, or else all except ``known_names``.

    ``known_names`` are experts whose files the caller knows, so their folders leave no choice. ``pretrained`` replaces
    the pretrained model of the folder.

    Raises:
        CheckpointError: no models fit together, or the folder leaves a choice; the message lists the candidates.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise CheckpointError(f"{printable(folder, 300)} is not a folder of models.")
    listing = model_listing.list_typed_path(folder)
    left_out: dict[str, str] = {item.listed_path: item.problem for item in listing.items if item.problem}
    items = [item for item in listing.items if item.has_model_name and not item.problem]
    left_out |= _find_skipped_files(items)
    recognized = [(item, recognize_model(item)) for item in items if item.listed_path not in left_out]
    group = _choose_group(listing, recognized, pretrained)
    experts = _choose_experts(group, recognized, expert_names, pretrained, known_names)
    group_pretrained = "" if group.pretrained is None else group.pretrained.reference
    used_references = {pretrained or group_pretrained, *experts.values()}
    for item, facts in recognized:
        if item.reference not in used_references:
            is_expert = item.reference in {entry.reference for entry in group.experts.values()}
            left_out[item.listed_path] = (
                NOT_CHOSEN_REASON if is_expert else _explain_exclusion(item, facts.kind, facts.problem, group)
            )
    reasons: dict[str, list[str]] = {}
    for listed_path, reason in left_out.items():
        reasons.setdefault(reason, []).append(listed_path.partition("/")[2] or listed_path)
    return ModelLayout(
        group.title, group.layout, pretrained or group_pretrained, experts, group.is_guessed and not pretrained, reasons
    )


def _find_skipped_files(items: Iterable[CatalogEntry]) -> dict[str, str]:
    """{listed path: reason} of the files in experts' folders that the rules skip."""
    folders: dict[str, list[CatalogEntry]] = {}
    for item in items:
        if not item.is_folder:
            folders.setdefault(item.listed_path.rpartition("/")[0], []).append(item)
    left_out: dict[str, str] = {}
    for listed_path, models in folders.items():
        nonlinear = [item for item in models if not LINEARIZED_NAME.fullmatch(item.name)]
        if nonlinear:
            linearized = [item for item in models if item not in nonlinear]
            left_out |= {item.listed_path: "linearized, beside models that are not linearized" for item in linearized}
        finetuned = [item for item in nonlinear if FINETUNED_FILE.fullmatch(item.name)]
        pretrained = [item for item in nonlinear if PRETRAINED_NAME.fullmatch(item.name)]
        if "/" in listed_path and len(finetuned) == 1 and len(pretrained) <= 1:
            other_files = [item for item in nonlinear if item not in (*finetuned, *pretrained)]
            left_out |= {item.listed_path: f"beside {finetuned[0].path.name}" for item in other_files}
    return left_out


def _choose_group(listing: Listing, recognized: Sequence[RecognizedEntry], pretrained: str) -> ModelGroup:
    """The group of the folder itself if its pretrained model is certain, or else the only one in it."""
    all_groups = find_groups(recognized, listing.benchmarks)
    root = next((item.listed_path.partition("/")[0] for item in listing.items), "")
    complete_groups = [group for group in all_groups if pretrained or group.pretrained is not None] or all_groups
    root_groups = [
        group for group in complete_groups if group.title == root and not (group.is_guessed and not pretrained)
    ]
    candidates = root_groups or complete_groups
    if len(candidates) == 1:
        group = candidates[0]
        if group.pretrained is None and not pretrained:
            names = first_few(group.experts, MAX_NAMED)
            raise CheckpointError(
                f"No model in {printable(root)} is recognized as the pretrained one. Name it with --pretrained; the "
                f"others are {names}."
            )
        return group
    if candidates:
        titles = ", ".join(printable(group.title) for group in candidates)
        raise CheckpointError(
            f"{printable(root)} holds several groups of models; name the folder of one of them: {titles}."
        )
    contents = first_few(
        (f"{item.listed_path} ({facts.problem or facts.kind})" for item, facts in recognized), MAX_NAMED
    )
    raise CheckpointError(
        f"No models that belong together were recognized in {printable(root)}. "
        + (f"There are: {contents}." if contents else "It holds no model files.")
    )


def _choose_experts(
    group: ModelGroup,
    recognized: Sequence[RecognizedEntry],
    expert_names: Sequence[str],
    pretrained: str,
    known_names: Collection[str],
) -> dict[str, str]:
    """{name: reference} of the experts ``expert_names``, or of all except ``known_names``."""
    experts = {name: entry.reference for name, entry in group.experts.items()}
    if (
        pretrained and group.is_guessed and group.pretrained is not None
    ):  # the guess was wrong, so that model is an expert
        experts[group.pretrained.name] = group.pretrained.reference
    experts = {name: reference for name, reference in experts.items() if not _is_same_file(reference, pretrained)}
    unclear_folders = {
        name: files for name, files in _find_unclear_folders(group, recognized).items() if name not in known_names
    }
    if not expert_names:
        experts = {name: reference for name, reference in experts.items() if name not in known_names}
        name_pairs = [
            f"{name} and {name}{VALIDATION_SUFFIX}" for name in experts if f"{name}{VALIDATION_SUFFIX}" in experts
        ]
        choices = [*name_pairs, *(f"{name} ({', '.join(files)})" for name, files in unclear_folders.items())]
        if choices:
            raise CheckpointError(
                f"{printable(group.title)} leaves a choice: {first_few(choices, MAX_NAMED)}. Name the experts with "
                "--experts A,B,C, and one of several files with --expert NAME=FILE."
            )
        return experts
    keys = {name: _find_expert(name, group, experts, unclear_folders) for name in expert_names}
    return {key if key.casefold() == name.casefold() else name: experts[key] for name, key in keys.items()}


def _is_same_file(reference: str, other: str) -> bool:
    """Whether two references mean the same file."""
    return bool(other) and Path(reference).expanduser().resolve() == Path(other).expanduser().resolve()


def _find_expert(
    name: str, group: ModelGroup, experts: Mapping[str, str], unclear_folders: Mapping[str, Sequence[str]]
) -> str:
    """The expert with that name: exact, in other letter case, or with the suffix of validation parts."""
    key_by_lower_case = {key.casefold(): key for key in experts}
    for spelling in (name, f"{name}{VALIDATION_SUFFIX}"):
        if spelling in experts or spelling.casefold() in key_by_lower_case:
            return spelling if spelling in experts else key_by_lower_case[spelling.casefold()]
    if name in unclear_folders:
        raise CheckpointError(
            f"{printable(name)} holds several models, {', '.join(unclear_folders[name])}; name one with "
            f"--expert {name}=FILE."
        )
    if name in group.unrelated_names:
        raise CheckpointError(
            f"{printable(name)} was not trained from the pretrained model, judged by its weights. To use it, name it "
            f"with --expert {printable(name)}=FILE."
        )
    existing_names = first_few(experts, MAX_NAMED)
    raise CheckpointError(
        f"There is no expert {printable(name)!r}.{did_you_mean(name, experts)} There are {existing_names}."
    )


def _find_unclear_folders(group: ModelGroup, recognized: Sequence[RecognizedEntry]) -> dict[str, list[str]]:
    """{folder: its models} of the folders that hold several models, none of which is an expert."""
    used_paths = {entry.listed_path for entry in (*group.experts.values(), *filter(None, [group.pretrained]))}
    folders: dict[str, list[CatalogEntry]] = {}
    for item, facts in recognized:
        parent, _, last = item.listed_path.rpartition("/")
        if facts.kind == MODEL and not item.is_folder and parent.rpartition("/")[0] == group.title and last:
            folders.setdefault(parent.rpartition("/")[2], []).append(item)
    unclear_folders = {name: items for name, items in folders.items() if len(items) > 1}
    return {
        printable(name): [printable(item.path.name) for item in items]
        for name, items in unclear_folders.items()
        if not used_paths & {item.listed_path for item in items}
    }


def _explain_exclusion(item: CatalogEntry, kind: str, problem: str, group: ModelGroup) -> str:
    """Why a file is not among the used models."""
    if kind == HEAD:
        return "classification heads"
    if problem:
        return problem.rstrip(".")
    if kind not in {MODEL, ADAPTER}:
        return "not a model"
    if (
        item.name in group.unrelated_names
        or item.listed_path.rpartition("/")[0].rpartition("/")[2] in group.unrelated_names
    ):
        return "not trained from the pretrained model, judged by its weights"
    is_copy = group.pretrained is not None and PRETRAINED_NAME.fullmatch(item.name)
    return "another copy of the pretrained model" if is_copy else "of another architecture or group"

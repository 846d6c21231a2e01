"""Groups of models in a folder that belong together, with the pretrained model of each group.

A folder's members are the models in it, and the model of each subfolder that holds a single one. This covers the usual
layouts: a file for each expert, a folder for each, the published task vectors' `<Dataset>/finetuned.pt` beside
`zeroshot.pt`, adapters with their base, a benchmark's models.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from merging.models.head_detection import HEAD_NAME
from merging.models.inspection.distance import Distance
from merging.sharing.catalog.model_listing import CatalogEntry
from merging.sharing.catalog.model_recognition import ADAPTER, HEAD, MODEL, ModelFacts, adapter_fits
from merging.sharing.catalog.model_set_store import choose_free_name

RecognizedEntry = tuple[CatalogEntry, ModelFacts]
PRETRAINED_NAME = re.compile(
    r"(?:.*[-_.])?(?:pre-?trained|zero[-_]?shot|base[-_]?model|original)|base|openai|theta_?0", re.I
)
FINETUNED_NAME = re.compile(r"(?:.*[-_.])?fine-?tuned|checkpoint|model|adapter_model|pytorch_model", re.I)
VALIDATION_SUFFIX = "Val"  # a common suffix of names of data sets with a validation part
MULTITASK_NAME = "multitask"  # the model of a benchmark that is neither pretrained nor an expert
# A central member's sum of squared distances from all others is at most this share of any other member's sum.
CENTRAL_SHARE = 0.8
MIN_RELATED_MODELS = 2  # a model is only recognized by its weights if this many models are related to it
MAX_TRIED_BASES = 8  # models to which an adapter is applied, to find its base


@dataclass(frozen=True)
class ModelGroup:
    """Models that may be merged. ``pretrained`` is None if it could not be determined."""

    title: str
    layout: str  # a description of the files, to show
    pretrained: CatalogEntry | None
    experts: Mapping[str, CatalogEntry]
    heads: Mapping[str, CatalogEntry] = field(default_factory=dict)
    unrelated_names: tuple[str, ...] = ()  # names of members that do not seem to come from the pretrained model
    is_guessed: bool = False  # whether the pretrained model was recognized by its weights, not by its name


@dataclass
class _FolderMembers:
    """The members of one folder by name."""

    members: dict[str, RecognizedEntry] = field(default_factory=dict)
    heads: dict[str, CatalogEntry] = field(default_factory=dict)
    has_nested: bool = False  # whether some members are in subfolders


def find_groups(recognized: Sequence[RecognizedEntry], benchmarks: Iterable[CatalogEntry] = ()) -> list[ModelGroup]:
    """The model groups of all folders, in the order of their listed paths."""
    listed_paths = {entry.listed_path for entry in benchmarks}
    model_groups = []
    for listed_path, folder in sorted(_collect_members(recognized).items()):
        is_benchmark = listed_path.rpartition("/")[0] in listed_paths
        if is_benchmark:
            folder.members.pop(MULTITASK_NAME, None)
        if group := _make_group(listed_path, folder, recognized, is_benchmark=is_benchmark):
            model_groups.append(_add_base(group, recognized) if group.pretrained is None else group)
    # A group of one expert is dropped if a larger group has that expert.
    single = {id(group) for group in model_groups if len(group.experts) == 1}
    larger = {entry for group in model_groups if id(group) not in single for entry in group.experts.values()}
    return [group for group in model_groups if id(group) not in single or not larger.issuperset(group.experts.values())]


def _collect_members(recognized: Sequence[RecognizedEntry]) -> dict[str, _FolderMembers]:
    """{listed path of a folder: its members}."""
    folders: dict[str, _FolderMembers] = {}
    models_by_folder: dict[str, list[RecognizedEntry]] = {}
    for entry, facts in recognized:
        parent, _, folder_name = entry.listed_path.rpartition("/")
        if facts.kind == HEAD:
            head_name = HEAD_NAME.fullmatch(entry.name)
            folders.setdefault(parent, _FolderMembers()).heads[head_name[1] if head_name else entry.name] = entry
        elif facts.kind in {MODEL, ADAPTER} and parent:
            folder = folders.setdefault(parent, _FolderMembers())
            folder.members[choose_free_name(folder_name if entry.is_folder else entry.name, folder.members)] = (
                entry,
                facts,
            )
            folder.has_nested |= entry.is_folder
            if not entry.is_folder:
                models_by_folder.setdefault(parent, []).append((entry, facts))
    for listed_path, models in models_by_folder.items():
        parent, _, folder_name = listed_path.rpartition("/")
        if parent and (only_model := _find_only_model(models)):
            folder = folders.setdefault(parent, _FolderMembers())
            folder.members.setdefault(folder_name, only_model)
            folder.has_nested = True
            if len(models) == 2:  # each expert with a copy of the pretrained model
                folder.members.setdefault("zeroshot", next(model for model in models if model is not only_model))
    return folders


def _find_only_model(models: Sequence[RecognizedEntry]) -> RecognizedEntry | None:
    """The only model of a folder; a copy of the pretrained model beside it is ignored. None if there are more."""
    if len(models) == 1:
        return models[0]
    finetuned = [model for model in models if FINETUNED_NAME.fullmatch(model[0].name)]
    pretrained = [model for model in models if model not in finetuned and PRETRAINED_NAME.fullmatch(model[0].name)]
    return finetuned[0] if len(models) == 2 and len(finetuned) == len(pretrained) == 1 else None


def _make_group(
    listed_path: str, folder: _FolderMembers, recognized: Sequence[RecognizedEntry], *, is_benchmark: bool
) -> ModelGroup | None:
    members = _select_frequent_members(folder.members)
    kinds = {facts.kind for _, facts in members.values()}
    is_guessed = False
    if kinds == {ADAPTER}:
        first = next(iter(members.values()))
        pretrained = _find_adapter_base(first, recognized)
    else:
        name = _find_pretrained_by_name(members)
        if name is None:
            name = _find_central_member(members)
            is_guessed = name is not None
        pretrained = members.pop(name) if name is not None else None
    if not members or (pretrained is None and len(members) < 2) or (kinds == {ADAPTER} and len(members) < 2):
        return None
    if pretrained is not None:
        members = _shorten_names(members, pretrained[0].listed_path.rpartition("/")[2])
    base_facts = pretrained[1] if pretrained else None
    unrelated_names = []
    if base_facts and base_facts.sample is not None:
        unrelated_names = [
            name
            for name, (_, facts) in members.items()
            if facts.kind == MODEL and _find_related_distance(facts, base_facts) is None
        ]
    unrelated_names = unrelated_names if len(unrelated_names) < len(members) else []  # if all are, none is left out
    experts = {name: entry for name, (entry, _) in members.items() if name not in unrelated_names}
    if all(name.endswith(VALIDATION_SUFFIX) and name != VALIDATION_SUFFIX for name in experts):
        experts = {name.removesuffix(VALIDATION_SUFFIX): entry for name, entry in experts.items()}
    title = listed_path.rpartition("/")[0] if is_benchmark else listed_path
    layout = "benchmark folder" if is_benchmark else _describe_layout(folder, pretrained, kinds)
    return ModelGroup(
        title, layout, pretrained[0] if pretrained else None, experts, folder.heads, tuple(unrelated_names), is_guessed
    )


def _select_frequent_members(members: Mapping[str, RecognizedEntry]) -> dict[str, RecognizedEntry]:
    """The members with the most frequent signature; models of one architecture have the same signature."""
    counts = Counter(facts.signature for _, facts in members.values() if facts.signature)
    if not counts:
        return {}
    signature = counts.most_common(1)[0][0]
    return {name: member for name, member in members.items() if member[1].signature == signature}


def _find_pretrained_by_name(members: Mapping[str, RecognizedEntry]) -> str | None:
    """The member with a typical name of a pretrained model, or the one with whose name all others begin."""
    typical_names = [name for name in members if PRETRAINED_NAME.fullmatch(name.rpartition("/")[2])]
    if len(typical_names) == 1:
        return typical_names[0]
    common_beginnings = [name for name in members if all(other.startswith(name) for other in members)]
    return common_beginnings[0] if len(common_beginnings) == 1 and len(members) > 1 and not typical_names else None


def _shorten_names(members: Mapping[str, RecognizedEntry], beginning: str) -> dict[str, RecognizedEntry]:
    """The members by shorter names, without the pretrained model's name if all begin with it."""
    short = {name: name.removeprefix(beginning).lstrip("-_. ") for name in members}
    shorter = all(name.startswith(beginning) and short[name] for name in members)
    return {short[name] if shorter else name: member for name, member in members.items()}


def _find_central_member(members: Mapping[str, RecognizedEntry]) -> str | None:
    """The member that is clearly the nearest to all others: fine-tuning started from it. None if it is not clear."""
    sampled = {name: facts for name, (_, facts) in members.items() if facts.sample is not None}
    if len(sampled) < 3:
        return None
    totals: dict[str, tuple[int, float]] = {}  # minus the number of related models, sum of their squared distances
    for name, facts in sampled.items():
        distances = [_find_related_distance(other, facts) for key, other in sampled.items() if key != name]
        squared_distances = [distance.ratio**2 for distance in distances if distance is not None]
        totals[name] = -len(squared_distances), sum(squared_distances)  # unrelated models do not count
    nearest, second, *_ = sorted(totals, key=lambda name: totals[name])
    negative_count, distance = totals[nearest]
    is_clear = totals[second][0] > negative_count or distance <= CENTRAL_SHARE * totals[second][1]
    return nearest if -negative_count >= MIN_RELATED_MODELS and is_clear else None


def _find_adapter_base(adapter: RecognizedEntry, recognized: Sequence[RecognizedEntry]) -> RecognizedEntry | None:
    """The base of an adapter: the model that it names, else the first that it can be applied to."""
    base_name = adapter[1].base.rpartition("/")[2].partition("@")[0]
    models = [model for model in recognized if model[1].kind == MODEL]
    named_models = [model for model in models if base_name and model[0].name.rpartition("/")[2] == base_name]
    return next(
        (model for model in (*named_models, *models)[:MAX_TRIED_BASES] if adapter_fits(adapter[0], model[0])), None
    )


def _add_base(group: ModelGroup, recognized: Sequence[RecognizedEntry]) -> ModelGroup:
    """The group, with a pretrained model of another folder if one is clearly nearest to all of its experts."""
    experts = {entry.reference for entry in group.experts.values()}
    expert_facts = [facts for entry, facts in recognized if entry.reference in experts]
    candidates: list[tuple[float, CatalogEntry]] = []
    for entry, base in recognized:
        if base.kind == MODEL and entry.reference not in experts:
            distances = [_find_related_distance(facts, base) for facts in expert_facts]
            squared_distances = [distance.ratio**2 for distance in distances if distance is not None]
            candidates += [(sum(squared_distances), entry)] if len(squared_distances) == len(distances) > 0 else []
    candidates.sort(key=lambda pair: pair[0])
    is_clear = candidates and (len(candidates) == 1 or candidates[0][0] <= CENTRAL_SHARE * candidates[1][0])
    return replace(group, pretrained=candidates[0][1], is_guessed=True) if is_clear else group


def _describe_layout(folder: _FolderMembers, pretrained: RecognizedEntry | None, kinds: set[str]) -> str:
    if kinds == {ADAPTER}:
        return "LoRA adapters with their base" if pretrained else "LoRA adapters without their base"
    if folder.has_nested and pretrained and "zeroshot" in pretrained[0].name:
        return "layout of the published task vectors"
    return "a folder for each expert" if folder.has_nested else "a file for each expert"


def find_nearest_base(facts: ModelFacts, bases: Mapping[str, ModelFacts]) -> tuple[str, Distance] | None:
    """The pretrained model among ``bases`` from which a model was trained, and the distance between the two."""
    distances = {
        name: distance for name, base in bases.items() if (distance := _find_related_distance(facts, base)) is not None
    }
    return min(distances.items(), key=lambda pair: pair[1].ratio) if distances else None


def _find_related_distance(facts: ModelFacts, base: ModelFacts) -> Distance | None:
    """The distance from a base; None if the two cannot be compared or are certainly unrelated."""
    distance = facts.distance(base)
    return None if distance is None or distance.unrelated else distance

"""Which models of a folder belong together, and which of them the others were trained from.

A folder's members are the models in it and in each folder in it that holds a single one, as the usual layouts have
them: a file for each expert, a folder for each, the published task vectors' `<Dataset>/finetuned.pt` beside
`zeroshot.pt`, adapters with their base, a benchmark's models.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from merging.catalog.model_sets import free_name
from merging.catalog.recognize import ADAPTER, HEAD, MODEL, ModelFacts, applies
from merging.catalog.scan import CatalogEntry

Seen = tuple[CatalogEntry, ModelFacts]
PRETRAINED_NAME = re.compile(
    r"(?:.*[-_.])?(?:pre-?trained|zero[-_]?shot|base[-_]?model|original)|base|openai|theta_?0", re.I
)
FINETUNED_NAME = re.compile(r"(?:.*[-_.])?fine-?tuned|checkpoint|model|adapter_model|pytorch_model", re.I)
HEAD_NAME = re.compile(r"head[-_](.+)", re.I)
VALIDATION = "Val"  # what some put behind the names of data sets that have a validation part
MULTITASK = "multitask"  # the model of a benchmark that is neither pretrained nor an expert
CENTRAL = 0.85  # by how much nearer to all others than any other member the pretrained model must be
FEWEST = 2  # others that the pretrained model must be near to, if its numbers are to tell
TRIED = 8  # models that an adapter is tried on


@dataclass(frozen=True)
class ModelGroup:
    """Models that may be merged. ``pretrained`` is None where nothing tells which it is."""

    title: str
    layout: str
    pretrained: CatalogEntry | None
    experts: Mapping[str, CatalogEntry]
    heads: Mapping[str, CatalogEntry] = field(default_factory=dict)
    apart: tuple[str, ...] = ()  # names of members that do not seem to come from the pretrained model
    guessed: bool = False  # whether the pretrained model was told by its numbers, not by its name


@dataclass
class _FolderMembers:
    """The members of one folder by name."""

    members: dict[str, Seen] = field(default_factory=dict)
    heads: dict[str, CatalogEntry] = field(default_factory=dict)
    nested: bool = False  # whether members come from folders in it


def groups(seen: Sequence[Seen], benchmarks: Iterable[CatalogEntry] = ()) -> list[ModelGroup]:
    """Every folder whose models may be merged, in the order of their places."""
    places = {item.place for item in benchmarks}
    found = []
    for place, folder in sorted(_folders(seen).items()):
        of_benchmark = place.rpartition("/")[0] in places
        if of_benchmark:
            folder.members.pop(MULTITASK, None)
        if group := _group(place, folder, seen, of_benchmark=of_benchmark):
            found.append(_with_base(group, seen) if group.pretrained is None else group)
    single = {id(group) for group in found if len(group.experts) == 1}
    larger = {item for group in found if id(group) not in single for item in group.experts.values()}
    return [group for group in found if id(group) not in single or not larger.issuperset(group.experts.values())]


def _folders(seen: Sequence[Seen]) -> dict[str, _FolderMembers]:
    """Members by the folder that they are members of."""
    found: dict[str, _FolderMembers] = {}
    inside: dict[str, list[Seen]] = {}
    for item, look in seen:
        parent, _, last = item.place.rpartition("/")
        if look.kind == HEAD:
            named = HEAD_NAME.fullmatch(item.name)
            found.setdefault(parent, _FolderMembers()).heads[named[1] if named else item.name] = item
        elif look.kind in {MODEL, ADAPTER} and parent:
            folder = found.setdefault(parent, _FolderMembers())
            folder.members[free_name(last if item.folder else item.name, folder.members)] = (item, look)
            folder.nested |= item.folder
            if not item.folder:
                inside.setdefault(parent, []).append((item, look))
    for place, models in inside.items():
        parent, _, last = place.rpartition("/")
        if parent and (only := _only(models)):
            folder = found.setdefault(parent, _FolderMembers())
            folder.members.setdefault(last, only)
            folder.nested = True
            if len(models) == 2:  # each expert with a copy of the pretrained model
                folder.members.setdefault("zeroshot", next(seen for seen in models if seen is not only))
    return found


def _only(models: Sequence[Seen]) -> Seen | None:
    """The one model that a folder is about, which may have the pretrained one beside it."""
    if len(models) == 1:
        return models[0]
    tuned = [seen for seen in models if FINETUNED_NAME.fullmatch(seen[0].name)]
    others = [seen for seen in models if seen not in tuned and PRETRAINED_NAME.fullmatch(seen[0].name)]
    return tuned[0] if len(models) == 2 and len(tuned) == len(others) == 1 else None


def _group(place: str, folder: _FolderMembers, seen: Sequence[Seen], *, of_benchmark: bool) -> ModelGroup | None:
    alike = _largest(folder.members)
    kinds = {look.kind for _, look in alike.values()}
    guessed = False
    if kinds == {ADAPTER}:
        first = next(iter(alike.values()))
        pretrained = _base(first, seen)
    else:
        name = _by_name(alike)
        if name is None:
            name = _central(alike)
            guessed = name is not None
        pretrained = alike.pop(name) if name is not None else None
    if not alike or (pretrained is None and len(alike) < 2) or (kinds == {ADAPTER} and len(alike) < 2):
        return None
    if pretrained is not None:
        alike = _without_beginning(alike, pretrained[0].place.rpartition("/")[2])
    below = pretrained[1] if pretrained else None
    apart = [name for name, (_, look) in alike.items() if below and below.drawn is not None and look.kind == MODEL
             and look.distance(below) is None]  # fmt: skip
    apart = apart if len(apart) < len(alike) else []
    experts = {name: item for name, (item, _) in alike.items() if name not in apart}
    if all(name.endswith(VALIDATION) and name != VALIDATION for name in experts):
        experts = {name.removesuffix(VALIDATION): item for name, item in experts.items()}
    title = place.rpartition("/")[0] if of_benchmark else place
    layout = "benchmark folder" if of_benchmark else _layout(folder, pretrained, kinds)
    return ModelGroup(
        title, layout, pretrained[0] if pretrained else None, experts, folder.heads, tuple(apart), guessed
    )


def _largest(members: Mapping[str, Seen]) -> dict[str, Seen]:
    """The members with the signature that most have."""
    counts = Counter(look.signature for _, look in members.values() if look.signature)
    if not counts:
        return {}
    most = counts.most_common(1)[0][0]
    return {name: seen for name, seen in members.items() if seen[1].signature == most}


def _by_name(members: Mapping[str, Seen]) -> str | None:
    """The member that is called like a pretrained model, or with whose name all others begin."""
    called = [name for name in members if PRETRAINED_NAME.fullmatch(name.rpartition("/")[2])]
    if len(called) == 1:
        return called[0]
    begin = [name for name in members if all(other.startswith(name) for other in members)]
    return begin[0] if len(begin) == 1 and len(members) > 1 and not called else None


def _without_beginning(members: Mapping[str, Seen], beginning: str) -> dict[str, Seen]:
    """The members by what tells their names apart, where all begin with the pretrained model's name."""
    short = {name: name.removeprefix(beginning).lstrip("-_. ") for name in members}
    shorter = all(name.startswith(beginning) and short[name] for name in members)
    return {short[name] if shorter else name: seen for name, seen in members.items()}


def _central(members: Mapping[str, Seen]) -> str | None:
    """The member that is clearly nearer to all others than any other is: fine-tuning leads away from it."""
    drawn = {name: look for name, (_, look) in members.items() if look.drawn is not None}
    if len(drawn) < 3:
        return None
    far: dict[str, tuple[int, float]] = {}
    for name, look in drawn.items():
        found = [other.distance(look) for key, other in drawn.items() if key != name]
        near = [distance for distance in found if distance is not None]
        far[name] = -len(near), sum(near)  # what comes from another model counts for none
    nearest, second, *_ = sorted(far, key=lambda name: far[name])
    related, distance = far[nearest]
    clear = far[second][0] > related or distance <= CENTRAL * far[second][1]
    return nearest if -related >= FEWEST and clear else None


def _base(adapter: Seen, seen: Sequence[Seen]) -> Seen | None:
    """The model that an adapter is of: the one that it names, else the first that it can be applied to."""
    last = adapter[1].base.rpartition("/")[2].partition("@")[0]
    models = [found for found in seen if found[1].kind == MODEL]
    named = [found for found in models if last and found[0].name.rpartition("/")[2] == last]
    return next((found for found in (*named, *models)[:TRIED] if applies(adapter[0], found[0])), None)


def _with_base(group: ModelGroup, seen: Sequence[Seen]) -> ModelGroup:
    """The group with the model elsewhere that is clearly nearest to all of its experts, if there is one."""
    experts = {item.reference for item in group.experts.values()}
    looks = [look for item, look in seen if item.reference in experts]
    far: list[tuple[float, CatalogEntry]] = []
    for item, base in seen:
        if base.kind == MODEL and item.reference not in experts:
            found = [look.distance(base) for look in looks]
            near = [distance for distance in found if distance is not None]
            far += [(sum(near), item)] if len(near) == len(found) > 0 else []
    far.sort(key=lambda pair: pair[0])
    clear = far and (len(far) == 1 or far[0][0] <= CENTRAL * far[1][0])
    return replace(group, pretrained=far[0][1], guessed=True) if clear else group


def _layout(folder: _FolderMembers, pretrained: Seen | None, kinds: set[str]) -> str:
    if kinds == {ADAPTER}:
        return "LoRA adapters with their base" if pretrained else "LoRA adapters, their base is not here"
    if folder.nested and pretrained and "zeroshot" in pretrained[0].name:
        return "layout of the published task vectors"
    return "a folder for each expert" if folder.nested else "a file for each expert"


def nearest(look: ModelFacts, bases: Mapping[str, ModelFacts]) -> tuple[str, float] | None:
    """Which of some pretrained models a model was trained from, and by how much it was changed."""
    found = {name: distance for name, base in bases.items() if (distance := look.distance(base)) is not None}
    return min(found.items(), key=lambda pair: pair[1]) if found else None

"""An expert's tensor names matched to the pretrained model's: prefixes, and names that differ between versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

TRAINER_PREFIXES = ("module.", "_orig_mod.", "base_model.model.")  # prefixes that trainers put before every name
OLD_NORM_WORDS = {"gamma": "weight", "beta": "bias"}  # of norms, in the first files of BERT
MAX_PREFIXES = 16  # candidates that are tried: those that most anchors suggest
ANCHOR_COUNT = 3  # names that are searched behind every prefix
Later = Callable[[str], str]  # maps a file's name to that of the current version of its library


@dataclass(frozen=True, slots=True)
class MatchedNames:
    """{the pretrained model's name, or the name without prefixes: name in the file}, and sentences on the changes."""

    stored: dict[str, str]
    notes: tuple[str, ...] = ()


def keep_name(name: str) -> str:
    """The name itself, for networks whose names do not differ between versions."""
    return name


def match_names(base: Collection[str], expert_names: Collection[str], later: Later = keep_name) -> MatchedNames:
    """An expert's names, matched to those of the pretrained model, ``base``."""
    if set(expert_names) <= set(base):
        return MatchedNames({name: name for name in expert_names})
    notes = []
    wrapped = _find_wrapper(expert_names) if not _find_wrapper(base) else ""
    shown = {name.removeprefix(wrapped): name for name in expert_names}
    own = {_rename_to_current(name, later): name for name in base}
    added, removed = _find_prefix(list(own), [_rename_to_current(name, later) for name in shown])
    stored: dict[str, str] = {}
    versions = old = False
    for short, name in shown.items():
        plain = short.removeprefix(removed)
        new = own.get(added + _rename_to_current(short, later).removeprefix(removed), "")
        if new and new not in stored:
            differs = new != added + plain
            renamed_last = differs and new.rpartition(".")[0] == (added + plain).rpartition(".")[0]
            old, versions = old or renamed_last, versions or (differs and not renamed_last)
        else:
            new = plain if plain not in stored and plain not in base else name
        stored[new] = name
    if wrapped + removed:
        notes.append(f"the names begin with {wrapped + removed!r}, which was removed.")
    if added:
        notes.append(f"the names lack {added!r}, which was added.")
    if versions:
        notes.append("names of Transformers 5 were changed to those of the pretrained model's file.")
    if old:
        notes.append("gamma and beta of norms were renamed to weight and bias.")
    return MatchedNames(stored, tuple(notes))


def _rename_to_current(name: str, later: Later) -> str:
    """A name as the current version of its library has it, so that both versions can be compared."""
    stem, _, last = name.rpartition(".")
    if last in OLD_NORM_WORDS and "norm" in stem.rpartition(".")[2].lower():
        name = f"{stem}.{OLD_NORM_WORDS[last]}"
    return later(name)


def _find_wrapper(names: Iterable[str]) -> str:
    """The prefixes of trainers that all of these names share."""
    listed, prefix = list(names), ""
    while found := next((w for w in TRAINER_PREFIXES if listed and all(n.startswith(prefix + w) for n in listed)), ""):
        prefix += found
    return prefix


def _find_prefix(base: Sequence[str], found: Sequence[str]) -> tuple[str, str]:
    """(prefix to add to an expert's names, prefix to remove) that makes most of them the pretrained model's."""
    ours, theirs = set(base), set(found)
    options: Counter[tuple[str, str]] = Counter()
    for anchor in sorted(base, key=lambda name: (-name.count("."), name))[:ANCHOR_COUNT]:
        options.update(("", name[: -len(anchor)]) for name in theirs if name.endswith("." + anchor))
    for anchor in sorted(found, key=lambda name: (-name.count("."), name))[:ANCHOR_COUNT]:
        options.update((name[: -len(anchor)], "") for name in ours if name.endswith("." + anchor))
        parts = anchor.split(".")  # an adapter need not have the deepest of the pretrained model's names
        ends = (index for index in range(1, len(parts)) if ".".join(parts[index:]) in ours)
        options.update(("", ".".join(parts[:index]) + ".") for index in ends)

    def count_matches(option: tuple[str, str]) -> int:
        added, removed = option
        return len(ours & {added + name.removeprefix(removed) for name in theirs if name.startswith(removed)})

    tried = {option for option, _ in options.most_common(MAX_PREFIXES)}
    return max([("", ""), *(option for option in options if option in tried)], key=count_matches)

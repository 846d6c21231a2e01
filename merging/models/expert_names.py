"""Matches an expert's tensor names to the pretrained model's: prefixes, and names that differ between versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

TRAINER_PREFIXES = ("module.", "_orig_mod.", "base_model.model.")  # prefixes that trainers put before every name
OLD_NORM_WORDS = {"gamma": "weight", "beta": "bias"}  # last words of norms' names in the first files of BERT, and today
MAX_PREFIXES = 16  # candidates that are tried, the most frequent first
ANCHOR_COUNT = 3  # names of one model that are searched at the end of the other model's names
# Maps a name in a file to the name that the later version of its library gives to the tensor: Transformers 5.
Later = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class MatchedNames:
    """``stored`` is {the pretrained model's name, or the name without prefixes: name in the file}.

    ``notes`` are sentences about the changes.
    """

    stored: dict[str, str]
    notes: tuple[str, ...] = ()


def keep_name(name: str) -> str:
    """A ``Later`` that returns the name itself, for networks whose names do not differ between versions."""
    return name


def match_names(
    pretrained_names: Collection[str], expert_names: Collection[str], rename: Later = keep_name
) -> MatchedNames:
    """An expert's names, matched to those of the pretrained model.

    Names of different versions match if ``rename`` gives them the same current name.
    """
    if set(expert_names) <= set(pretrained_names):
        return MatchedNames({name: name for name in expert_names})
    notes = []
    wrapper = _find_wrapper(expert_names) if not _find_wrapper(pretrained_names) else ""
    unwrapped_names = {name.removeprefix(wrapper): name for name in expert_names}
    current_names = {_rename_to_current(name, rename): name for name in pretrained_names}
    added, removed = _find_prefix(list(current_names), [_rename_to_current(name, rename) for name in unwrapped_names])
    stored: dict[str, str] = {}
    has_version_changes = has_old_norms = False
    for short, name in unwrapped_names.items():
        bare_name = short.removeprefix(removed)
        new_name = current_names.get(added + _rename_to_current(short, rename).removeprefix(removed), "")
        if new_name and new_name not in stored:
            differs = new_name != added + bare_name
            renamed_last = differs and new_name.rpartition(".")[0] == (added + bare_name).rpartition(".")[0]
            has_old_norms |= renamed_last
            has_version_changes |= differs and not renamed_last
        else:
            new_name = bare_name if bare_name not in stored and bare_name not in pretrained_names else name
        stored[new_name] = name
    if wrapper + removed:
        notes.append(f"the names begin with {wrapper + removed!r}, which was removed.")
    if added:
        notes.append(f"the names lack {added!r}, which was added.")
    if has_version_changes:
        notes.append("names of Transformers 5 were changed to those of the pretrained model's file.")
    if has_old_norms:
        notes.append("gamma and beta of norms were renamed to weight and bias.")
    return MatchedNames(stored, tuple(notes))


def _rename_to_current(name: str, rename: Later) -> str:
    """A name as the current version of its library has it, so that both versions can be compared."""
    stem, _, last_word = name.rpartition(".")
    if last_word in OLD_NORM_WORDS and "norm" in stem.rpartition(".")[2].lower():
        name = f"{stem}.{OLD_NORM_WORDS[last_word]}"
    return rename(name)


def _find_wrapper(names: Iterable[str]) -> str:
    """The joined prefixes of trainers that all of these names share; empty if there are none."""
    name_list, prefix = list(names), ""
    while wrapper := next(
        (w for w in TRAINER_PREFIXES if name_list and all(n.startswith(prefix + w) for n in name_list)), ""
    ):
        prefix += wrapper
    return prefix


def _find_prefix(pretrained_names: Sequence[str], expert_names: Sequence[str]) -> tuple[str, str]:
    """(prefix to add to an expert's names, prefix to remove), so that most names become the pretrained model's."""
    pretrained_set, expert_set = set(pretrained_names), set(expert_names)
    options: Counter[tuple[str, str]] = Counter()
    for anchor in sorted(pretrained_names, key=lambda name: (-name.count("."), name))[:ANCHOR_COUNT]:
        options.update(("", name[: -len(anchor)]) for name in expert_set if name.endswith("." + anchor))
    for anchor in sorted(expert_names, key=lambda name: (-name.count("."), name))[:ANCHOR_COUNT]:
        options.update((name[: -len(anchor)], "") for name in pretrained_set if name.endswith("." + anchor))
        parts = anchor.split(".")  # an adapter need not have the deepest of the pretrained model's names
        ends = (index for index in range(1, len(parts)) if ".".join(parts[index:]) in pretrained_set)
        options.update(("", ".".join(parts[:index]) + ".") for index in ends)

    def count_matches(option: tuple[str, str]) -> int:
        added, removed = option
        return len(
            pretrained_set & {added + name.removeprefix(removed) for name in expert_set if name.startswith(removed)}
        )

    likeliest = {option for option, _ in options.most_common(MAX_PREFIXES)}
    return max([("", ""), *(option for option in options if option in likeliest)], key=count_matches)

"""Names of an expert's tensors as the pretrained model writes them: prefixes, and what versions call differently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

WRAPPERS = ("module.", "_orig_mod.", "base_model.model.")  # what trainers put before every name
OLD = {"gamma": "weight", "beta": "bias"}  # of norms, in the first files of BERT
MOST_PREFIXES = 16  # that are tried, those that most anchors have
ANCHORS = 3  # names that are looked for behind every prefix
Later = Callable[[str], str]  # a file's name as the current version of its library has it


@dataclass(frozen=True, slots=True)
class Names:
    """{name as the pretrained model writes it, or would: name in the file}, and what was done, in sentences."""

    stored: dict[str, str]
    notes: tuple[str, ...] = ()


def keep_name(name: str) -> str:
    """The name itself: no version is known to call it differently."""
    return name


def match_names(base: Collection[str], expert_names: Collection[str], later: Later = keep_name) -> Names:
    """An expert's names, ``found``, under those of the pretrained model, ``base``."""
    if set(expert_names) <= set(base):
        return Names({name: name for name in expert_names})
    notes = []
    wrapped = _wrapped(expert_names) if not _wrapped(base) else ""
    shown = {name.removeprefix(wrapped): name for name in expert_names}
    own = {_current(name, later): name for name in base}
    put, taken = _prefix(list(own), [_current(name, later) for name in shown])
    stored: dict[str, str] = {}
    versions = old = False
    for short, name in shown.items():
        plain = short.removeprefix(taken)
        new = own.get(put + _current(short, later).removeprefix(taken), "")
        if new and new not in stored:
            otherwise = new != put + plain
            renewed = otherwise and new.rpartition(".")[0] == (put + plain).rpartition(".")[0]
            old, versions = old or renewed, versions or (otherwise and not renewed)
        else:
            new = plain if plain not in stored and plain not in base else name
        stored[new] = name
    if wrapped + taken:
        notes.append(f"the names begin with {wrapped + taken!r}, which was taken off.")
    if put:
        notes.append(f"the names lack {put!r}, which was put before them.")
    if versions:
        notes.append("names of Transformers 5 were brought to the file's.")
    if old:
        notes.append("gamma and beta of norms are their weights and biases.")
    return Names(stored, tuple(notes))


def _current(name: str, later: Later) -> str:
    """A name as the current version of its library has it, so that both versions can be compared."""
    stem, _, last = name.rpartition(".")
    if last in OLD and "norm" in stem.rpartition(".")[2].lower():
        name = f"{stem}.{OLD[last]}"
    return later(name)


def _wrapped(names: Iterable[str]) -> str:
    """What trainers put before all of these names."""
    listed, prefix = list(names), ""
    while found := next((w for w in WRAPPERS if listed and all(n.startswith(prefix + w) for n in listed)), ""):
        prefix += found
    return prefix


def _prefix(base: Sequence[str], found: Sequence[str]) -> tuple[str, str]:
    """(what to put before an expert's names, what to take off), so that most are the pretrained model's."""
    ours, theirs = set(base), set(found)
    options: Counter[tuple[str, str]] = Counter()
    for anchor in sorted(base, key=lambda name: (-name.count("."), name))[:ANCHORS]:
        options.update(("", name[: -len(anchor)]) for name in theirs if name.endswith("." + anchor))
    for anchor in sorted(found, key=lambda name: (-name.count("."), name))[:ANCHORS]:
        options.update((name[: -len(anchor)], "") for name in ours if name.endswith("." + anchor))
        parts = anchor.split(".")  # of an adapter, which need not have the deepest of the pretrained model's names
        ends = (at for at in range(1, len(parts)) if ".".join(parts[at:]) in ours)
        options.update(("", ".".join(parts[:at]) + ".") for at in ends)

    def covered(option: tuple[str, str]) -> int:
        put, taken = option
        return len(ours & {put + name.removeprefix(taken) for name in theirs if name.startswith(taken)})

    tried = {option for option, _ in options.most_common(MOST_PREFIXES)}
    return max([("", ""), *(option for option in options if option in tried)], key=covered)

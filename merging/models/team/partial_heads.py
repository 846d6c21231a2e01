"""Heads of the pretraining, such as cls or lm_head, that some experts of a team have and others lack."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from merging.base.text import first_few, plural

BODY_PREFIXES = ("emb", "shared", "tok", "wpe", "wte", "norm", "ln_", "final")  # prefixes of modules that are no heads


@dataclass(frozen=True, slots=True)
class PartialHead:
    """The tensors of a head of the pretrained model, the experts that have it, and those that lack all of it."""

    tensors: tuple[str, ...]
    having: tuple[str, ...]
    lacking: tuple[str, ...]

    def sentences(self, is_unchanged: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
        """(expert, sentence) for each expert of the smaller group; it says if an expert has the head unchanged."""
        modules = first_few(dict.fromkeys(name.partition(".")[0] for name in self.tensors))
        head = f"the pretrained model's head {modules} ({plural(len(self.tensors), 'tensor')})"
        if len(self.lacking) < len(self.having):
            have = "has" if len(self.having) == 1 else "have"
            yield from ((name, f"lacks {head}, which {first_few(self.having)} {have}") for name in self.lacking)
            return
        lack = "lacks" if len(self.lacking) == 1 else "lack"
        for name in self.having:
            unchanged = ", unchanged" if is_unchanged(name) else ""
            yield name, f"has {head}{unchanged}, which {first_few(self.lacking)} {lack}"


def find_partial_heads(
    outside: Collection[str], inside: Iterable[str], names: Mapping[str, Collection[str]]
) -> list[PartialHead]:
    """The heads of the pretrained model that some experts have and others lack.

    ``outside`` and ``inside`` are its tensors outside and inside the blocks; a module with tensors inside is no head.
    ``names`` are the tensors of each expert.
    """
    bodies = {tensor.partition(".")[0] for tensor in inside}
    modules = {name: {tensor.partition(".")[0] for tensor in own} for name, own in names.items()}
    found: dict[tuple[str, ...], list[str]] = {}
    for tensor in outside:
        module = tensor.partition(".")[0]
        having = tuple(name for name, own in modules.items() if module in own)
        if 0 < len(having) < len(names) and module not in bodies and not module.startswith(BODY_PREFIXES):
            found.setdefault(having, []).append(tensor)
    return [
        PartialHead(tuple(tensors), having, tuple(name for name in names if name not in having))
        for having, tensors in found.items()
    ]

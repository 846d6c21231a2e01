"""Pretraining heads, such as cls or lm_head, that some experts have and others lack.

Output layers are compared between the pretrained model and its experts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from merging.base.text import first_few, plural

BODY_PREFIXES = (
    "emb",
    "shared",
    "tok",
    "wpe",
    "wte",
    "norm",
    "ln_",
    "final",
)  # beginnings of modules that are not heads


@dataclass(frozen=True, slots=True)
class PartialHead:
    """The tensors of a head of the pretrained model, the experts ``having`` it, and the experts ``lacking`` it."""

    tensors: tuple[str, ...]
    having: tuple[str, ...]
    lacking: tuple[str, ...]

    def sentences(self, is_unchanged: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
        """(expert, sentence) for each expert of the smaller group.

        ``is_unchanged(expert)`` tells whether an expert's head holds the pretrained model's numbers.
        """
        modules = first_few(dict.fromkeys(name.partition(".")[0] for name in self.tensors))
        head = f"the pretrained model's head {modules} ({plural(len(self.tensors), 'tensor')})"
        if len(self.lacking) < len(self.having):
            verb = "has" if len(self.having) == 1 else "have"
            yield from ((name, f"lacks {head}, which {first_few(self.having)} {verb}") for name in self.lacking)
            return
        lack = "lacks" if len(self.lacking) == 1 else "lack"
        for name in self.having:
            unchanged = ", unchanged" if is_unchanged(name) else ""
            yield name, f"has {head}{unchanged}, which {first_few(self.lacking)} {lack}"


def find_partial_heads(
    outer_tensors: Collection[str], block_tensors: Iterable[str], expert_tensors: Mapping[str, Collection[str]]
) -> list[PartialHead]:
    """The heads of the pretrained model that some experts have and others lack.

    ``outer_tensors`` and ``block_tensors`` are the pretrained model's tensors outside and inside the blocks. A module
    with tensors inside the blocks is not a head. ``expert_tensors`` are the tensors of each expert.
    """
    bodies = {tensor.partition(".")[0] for tensor in block_tensors}
    modules = {
        name: {tensor.partition(".")[0] for tensor in expert_modules} for name, expert_modules in expert_tensors.items()
    }
    heads: dict[tuple[str, ...], list[str]] = {}
    for tensor in outer_tensors:
        module = tensor.partition(".")[0]
        having = tuple(name for name, expert_modules in modules.items() if module in expert_modules)
        if 0 < len(having) < len(expert_tensors) and module not in bodies and not module.startswith(BODY_PREFIXES):
            heads.setdefault(having, []).append(tensor)
    return [
        PartialHead(tuple(tensors), having, tuple(name for name in expert_tensors if name not in having))
        for having, tensors in heads.items()
    ]

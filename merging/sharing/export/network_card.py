"""The model card of a network other than CLIP: its kind, the inferred facts, and the tensors stored per task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from merging.base.files.plain_yaml import write_yaml
from merging.base.text import escape_markdown, first_few, markdown_table, plural, printable
from merging.base.version import __version__
from merging.models.checkpoint import Checkpoint
from merging.models.families import Role
from merging.models.task_checkpoints import count_experts
from merging.sharing.export.adapter_export import AdapterFile
from merging.sharing.export.model_card import (
    CARD_FILE,
    MAX_WARNING_CHARACTERS,
    describe_cautions,
    describe_methods,
    describe_recipe,
    markdown_text,
    parents_table,
)
from merging.sharing.export.network_export import HEAD_FILE, HEADS_FOLDER, NetworkExport


def write_network_card(folder: Path, export: NetworkExport, notes: list[str]) -> None:
    """Write README.md."""
    text = "\n\n".join(part for part in _write_sections(export, notes) if part)
    (folder / CARD_FILE).write_text(f"---\n{write_yaml(_collect_metadata(export))}---\n\n{text}\n", "utf-8")


def write_adapter_card(folder: Path, export: NetworkExport, adapter: AdapterFile) -> None:
    """Write README.md of an adapter."""
    entries = _collect_metadata(export) | {"library_name": "peft"}
    rows = [(markdown_text(name), f"{share:.4f}") for name, share in adapter.shares.items()]
    head_notes = ["The adapter lacks the heads of tasks; --to hf writes them."] if export.heads else []
    parts = [*_write_sections(export, [*adapter.notes, *head_notes])]
    loading_index = parts.index("## How to load it")
    parts[loading_index + 1] = (
        f"A LoRA adapter of rank {adapter.rank}: `PeftModel.from_pretrained(model, folder)` applies it to the "
        "pretrained model. The share of the squared norm of each tensor's change that it retains:\n\n"
        f"{markdown_table(('Tensor', 'Share retained'), rows)}"
    )
    text = "\n\n".join(part for part in parts if part)
    (folder / CARD_FILE).write_text(f"---\n{write_yaml(entries)}---\n\n{text}\n", "utf-8")


def _collect_metadata(export: NetworkExport) -> dict[str, Any]:
    """The metadata that the Hub reads."""
    recipe = export.source.recipe
    entries: dict[str, Any] = {
        "library_name": "transformers",
        "base_model": list(dict.fromkeys(parent.model_id for parent in export.source.parents)),
    }
    if recipe is not None:
        keys = dict.fromkeys(step.key for step in recipe.steps)
        entries |= {"base_model_relation": "merge", "tags": ["merge", "model-merging", *keys]}
    return entries


def _write_sections(export: NetworkExport, notes: list[str]) -> Iterator[str]:
    source = export.source
    yield f"# {markdown_text(source.title)}"
    yield _describe_network(export)
    if source.run is not None:
        yield describe_cautions(source.run)
    yield "## How to load it"
    yield (
        "`from_pretrained` of its class in Transformers loads this folder."
        if not source.tasks
        else "`from_pretrained` of its class in Transformers loads the folders that tasks.json names for the tasks."
    )
    yield "## What was inferred"
    yield _describe_inference(next(iter(export.models.values())))
    if export.heads or export.task:
        yield "## Kept per task"
        yield from _describe_heads(export)
    if source.recipe is not None:
        yield "## Method"
        yield from describe_methods(source.recipe)
    yield "## Parents"
    yield parents_table(source)
    if source.recipe is not None:
        yield "## Recipe"
        yield describe_recipe(source.recipe)
    yield "## Limits"
    lines = [*notes, *(source.run.remarks if source.run else ())]
    lines.append("Its license follows from those of its parents, which were not read.")
    yield "\n".join(f"- {escape_markdown(printable(line, MAX_WARNING_CHARACTERS))}" for line in lines)


def _name_network_kind(export: NetworkExport) -> str:
    return markdown_text(export.title) if export.title else "a network of unknown kind"


def _describe_network(export: NetworkExport) -> str:
    recipe = export.source.recipe
    if recipe is None:
        return f"This is {_name_network_kind(export)}, written by Mergescope {__version__} without changing a number."
    head_text = f", with the head of {markdown_text(export.task)}" if export.task else ""
    count_text = count_experts(list(dict(recipe.experts)))
    merge_text = f"Merged from {count_text} by Mergescope: {markdown_text(recipe.text())}."
    return f"{merge_text} The network: {_name_network_kind(export)}{head_text}."


def _describe_inference(model: Checkpoint) -> str:
    """The roles, blocks and towers that were inferred from names, shapes and types of the tensors."""
    parameters = model.parameters
    towers = list(dict.fromkeys(p.tower for p in parameters if p.tower))
    blocks = len({(p.tower, p.block) for p in parameters if p.block is not None})
    towers_text = f" in {len(towers)} towers ({first_few(map(markdown_text, towers))})" if towers else ""
    counts = Counter(p.role for p in parameters)
    rows = [(role.value.replace("_", " "), f"{counts[role]}") for role in Role if counts[role]]
    counts_text = f"{plural(len(parameters), 'tensor')}, {plural(blocks, 'block')}{towers_text}"
    text = f"{counts_text}, by names, shapes and types of the tensors alone."
    return f"{text}\n\n{markdown_table(('Role', 'Tensors'), rows)}"


def _describe_heads(export: NetworkExport) -> Iterator[str]:
    if export.task:
        yield f"The head and the configuration are those of {markdown_text(export.task)}."
        return
    yield (
        f"The head of each task is in `{HEADS_FOLDER}/`, in a folder named after its expert: `{HEAD_FILE}` and the "
        "expert's `config.json`. `mergescope export RUN --task NAME` writes the merged model with one of them."
    )
    rows = [(markdown_text(expert), markdown_text(first_few(tensors))) for expert, tensors in export.heads.items()]
    yield markdown_table(("Expert", "Tensors"), rows)

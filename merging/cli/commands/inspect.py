"""The command ``inspect``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from merging.base.text import plural, printable, size_text
from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.model_options import ModelType, architecture_option, family_option
from merging.cli.options import Command, argument, option
from merging.cli.output import encode_json, format_columns, report_progress
from merging.models.formats.model_sources import ModelRef

if TYPE_CHECKING:
    from merging.models.checkpoint import Checkpoint


@click.command(cls=Command)
@argument(
    "checkpoint", type=ModelType("the checkpoint"), help="a file or folder, or bundled:NAME or bundled:gentle/NAME"
)
@architecture_option
@family_option
@option("--no-digest", is_flag=True, help="read only names, shapes and types, not the values")
@option("--tensors", is_flag=True, help="print every tensor: its section, its role, and what becomes of it in a merge")
@click.pass_obj
def inspect(call: Call, checkpoint: ModelRef, architecture: str, family: str, no_digest: bool, tensors: bool) -> int:
    """Describe a checkpoint by its content."""
    from merging.models.architecture import add_stated_architecture
    from merging.models.inspection import checkpoint_facts
    from merging.models.stated_architecture import StatedArchitecture

    model = add_stated_architecture(checkpoint.open(family=family), StatedArchitecture.parse(architecture))
    if tensors:
        print(_format_tensors(model, call.json))
        return DONE
    with report_progress(None) as progress:
        facts = checkpoint_facts.inspect(model, digest=not no_digest, context=call.context(progress))
    print(encode_json(facts) if call.json else "\n".join(_format_facts(facts)))
    return DONE


def _format_tensors(model: Checkpoint, json: bool) -> str:
    """The table of tensors for people, or for programs."""
    from merging.models.inspection.tensor_table import tensor_table

    table = tensor_table(model).astype({"block": object})
    records = table.where(table.notna(), None).to_dict("records")
    if json:
        return encode_json(records)
    rows: list[tuple[str, ...]] = [("tensor", "section", "role", "shape", "type", "becomes")]
    for row in records:
        role = f"{row['role']}, transposed" if row["transposed"] else row["role"]
        role = f"{role}, tied to {row['tied_to']}" if row["tied_to"] else role
        shape = " × ".join(map(str, row["shape"])) or "one number"
        cells = (row["tensor"], row["section"], role, shape, row["dtype"], row["becomes"])
        rows.append(tuple(printable(str(cell)) for cell in cells))
    sources = {"clip": "the rules of CLIP", "facts": "facts of its kind, names and shapes"}
    source = sources.get(records[0]["told_by"], "names and shapes") if records else "nothing"
    return f"{format_columns(rows)}\nRoles were derived from {source}."


def _describe_counts(counts: Mapping[str, Any]) -> str:
    return f"{plural(counts['tensors'], 'tensor')} with {plural(counts['numbers'], 'number')}"


def _format_facts(facts: Mapping[str, Any]) -> Sequence[str]:
    """The facts for people."""
    sizes = facts["architecture"]
    rows = [
        ("file", facts["file"]),
        ("format", facts["format"]),
        ("names", facts["names"]),
        ("no family", facts["no_family"]),
        ("architecture", _describe_architecture(sizes) or (facts["no_architecture"] if not facts["no_family"] else "")),
        ("activation", _describe_activation(facts["activation"])),
        ("in the file", f"{_describe_counts(facts)}, {size_text(facts['bytes'])}"),
        ("types", ", ".join(f"{count} {name}" for name, count in facts["dtypes"].items())),
    ]
    if facts["dead_text"]["tensors"]:
        unused_text = facts["dead_text"]
        rows.append(("unused text", _describe_counts(unused_text)))
    if facts["adapter"]:
        rows.append(("adapter", ", ".join(f"{key} {value}" for key, value in facts["adapter"].items() if value != "")))
    if facts["digest"]:
        rows.append(("sha-256", facts["digest"]))
    lines = [format_columns([row for row in rows if row[1]])]
    if facts["roles"]:
        table = [
            ("role", "tensors", "numbers"),
            *((r["role"], f"{r['tensors']}", f"{r['numbers']:,}") for r in facts["roles"]),
        ]
        lines.append(format_columns(table, indent="  "))
    for key, value in facts["metadata"].items():
        lines.append(f"metadata {key}: {printable(value, 200)}")
    return [*lines, *facts["notes"], *facts["cautions"]]


def _describe_architecture(sizes: Mapping[str, Any] | None) -> str:
    if sizes is None:
        return ""
    published_name = f"{sizes['like']}: " if sizes["like"] else ""
    embedding = f"{sizes['embed_dim']} features" if sizes["projected"] else "no output projection"
    return (
        f"{published_name}{sizes['layers']} layers of width {sizes['width']}, {sizes['heads']} heads, patches of "
        f"{sizes['patch_size']}, images of {sizes['image_size']} × {sizes['image_size']}, {embedding}"
    )


def _describe_activation(stated: Mapping[str, Any] | None) -> str:
    if stated is None:
        return ""
    return stated["name"] if stated["known"] else f"{stated['name']} is assumed: no file states it"

"""The commands ``convert`` and ``inspect``: about one checkpoint, whatever its format."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from merging.checkpoints.references import BUNDLED_PREFIX, HUB_PREFIX, without_folders
from merging.cli.exit_codes import DONE, UsageError
from merging.cli.output import GB, columns, dumps, hub_ids, reporting, told
from merging.export.destination import refusal
from merging.export.export import export
from merging.formats.configs import SUFFIXES
from merging.inspection.checkpoint_facts import inspect
from merging.recipes.chain_text import check_file
from merging.text import printable, size_text


def convert(args: argparse.Namespace, stop: Event) -> int:
    """Write a checkpoint as a folder for Transformers or open_clip."""
    problems: list[str] = []
    check_file(args.checkpoint, "the checkpoint", problems)
    if args.base is not None:
        check_file(args.base, "the pretrained model", problems)
    out = args.out or Path(f"{_stem(args.checkpoint)}-{args.to}")
    if why := refusal(out, overwrite=args.overwrite):
        problems.append(why)
    if problems:
        raise UsageError(problems)
    with reporting(None) as progress:
        written = export(
            args.checkpoint,
            out,
            to=args.to,
            base=args.base,
            activation=args.activation,
            hub_ids=hub_ids(args.hub_id),
            overwrite=args.overwrite,
            shard_bytes=round(args.shard_size * GB),
            progress=progress,
            cancel=stop,
        )
    if args.json:
        print(dumps(told(written)))
    else:
        print("\n".join((*written.warnings, f"Written to {written.folder}: {', '.join(written.files)}")))
    return DONE


def _stem(reference: str) -> str:
    """What to call a folder made of a checkpoint."""
    name = without_folders(reference).removeprefix(BUNDLED_PREFIX).removeprefix(HUB_PREFIX).partition("@")[0]
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name.replace("/", "-") or "model"


def show(args: argparse.Namespace, stop: Event) -> int:
    """Say what a checkpoint is."""
    problems: list[str] = []
    check_file(args.checkpoint, "the checkpoint", problems)
    if problems:
        raise UsageError(problems)
    with reporting(None) as progress:
        facts = inspect(args.checkpoint, digest=not args.no_digest, progress=progress, cancel=stop)
    print(dumps(facts) if args.json else "\n".join(_lines(facts)))
    return DONE


def _lines(facts: Mapping[str, Any]) -> Sequence[str]:
    """The facts for people."""
    sizes = facts["architecture"]
    rows = [
        ("file", facts["file"]),
        ("format", facts["format"]),
        ("names", facts["names"]),
        ("no family", facts["no_family"]),
        ("architecture", _architecture(sizes) or (facts["no_architecture"] if not facts["no_family"] else "")),
        ("activation", _activation(facts["activation"])),
        ("in the file", f"{facts['tensors']} tensors with {facts['numbers']:,} numbers, {size_text(facts['bytes'])}"),
        ("types", ", ".join(f"{count} {name}" for name, count in facts["dtypes"].items())),
    ]
    if facts["dead_text"]["tensors"]:
        dead = facts["dead_text"]
        rows.append(("unused text", f"{dead['tensors']} tensors with {dead['numbers']:,} numbers"))
    if facts["adapter"]:
        rows.append(("adapter", ", ".join(f"{key} {value}" for key, value in facts["adapter"].items())))
    if facts["digest"]:
        rows.append(("sha-256", facts["digest"]))
    lines = [columns([row for row in rows if row[1]])]
    if facts["roles"]:
        table = [
            ("role", "tensors", "numbers"),
            *((r["role"], f"{r['tensors']}", f"{r['numbers']:,}") for r in facts["roles"]),
        ]
        lines.append(columns(table, indent="  "))
    for key, value in facts["metadata"].items():
        lines.append(f"metadata {key}: {printable(value, 200)}")
    return [*lines, *facts["notes"], *facts["cautions"]]


def _architecture(sizes: Mapping[str, Any] | None) -> str:
    if sizes is None:
        return ""
    known = f"{sizes['like']}: " if sizes["like"] else ""
    embedding = f"{sizes['embed_dim']} features" if sizes["projected"] else "no output projection"
    return (
        f"{known}{sizes['layers']} layers of width {sizes['width']}, {sizes['heads']} heads, patches of "
        f"{sizes['patch_size']}, images of {sizes['image_size']} × {sizes['image_size']}, {embedding}"
    )


def _activation(said: Mapping[str, Any] | None) -> str:
    if said is None:
        return ""
    return said["name"] if said["known"] else f"{said['name']} is assumed: nothing beside the weights says so"

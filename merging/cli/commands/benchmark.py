"""The command ``benchmark``: make a benchmark folder of one's own, check one, look at a data set, score features."""

from __future__ import annotations

import argparse
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from merging.cli.exit_codes import DONE, FAILED, UsageError
from merging.cli.output import columns, dumps, reporting
from merging.text import percent

if TYPE_CHECKING:
    from merging.benchmarks.benchmark import Benchmark
    from merging.benchmarks.build.description import Description


MAKING, EVALUATING = "Making", "Evaluating"


def benchmark_action(args: argparse.Namespace, stop: Event) -> int:
    """Run one of the actions."""
    return {"make": _make, "check": _check, "look": _look, "score": _score}[args.action](args, stop)


def _make(args: argparse.Namespace, stop: Event) -> int:
    from merging.benchmarks.build.write import make
    from merging.progress import Phases
    from merging.runs.reference_models import references
    from merging.runs.store import Store

    described, shares = _described(args), {MAKING: 1.0, EVALUATING: float(args.evaluate)}
    with reporting(args.events) as progress:
        phases = Phases(shares, progress)
        told = {"device": args.device, "cancel": stop}
        made = make(described, args.folder, force=args.overwrite, progress=phases.callback(MAKING), **told)
        if args.evaluate:
            library = Store(made.folder, libraries=(), dated=False)  # where the app looks for precomputed runs
            references(library, made, progress=phases.callback(EVALUATING), **told)
    _show(made, args)
    return DONE


def _described(args: argparse.Namespace) -> Description:
    """The description in a file, or in the arguments; options win over the file."""
    from dataclasses import replace

    from merging.benchmarks.build.description import Description

    models = ("pretrained", "text", "multitask")
    given = {name: getattr(args, name) for name in (*models, "activation", "images", "exemplars", "seed")}
    given = {name: value for name, value in given.items() if value is not None}
    if args.description is not None:
        if args.task:
            raise UsageError(["Tasks are described in the file of --from, or by --task, not both."])
        if mixed := [name for name in models if name in given]:
            raise UsageError([f"--{mixed[0]} belongs into the file of --from."])
        return replace(Description.load(args.description), **given)
    if "pretrained" not in given or not args.task:
        raise UsageError(["Give --pretrained and at least one --task NAME=PATH, or a description with --from FILE."])
    return Description.of({**given, "tasks": dict(map(_task, args.task))}, Path.cwd())


def _task(text: str) -> tuple[str, dict[str, str]]:
    """('cars', {'images': 'data/cars', 'prompts': 'cars'}) from 'cars=data/cars,prompts=cars'."""
    first, *others = text.split(",")
    pairs = [part.partition("=") for part in (first, *others)]
    if not all(equals and name.strip() and value.strip() for name, equals, value in pairs):
        raise UsageError([f"Write a task as NAME=PATH,option=value; got {text!r}. Paths with commas go into a file."])
    (name, _, path), *rest = pairs
    return name.strip(), {"images": path.strip(), **{option.strip(): value.strip() for option, _, value in rest}}


def _check(args: argparse.Namespace, stop: Event) -> int:
    from merging.benchmarks.benchmark import Benchmark
    from merging.benchmarks.build.write import altered
    from merging.errors import TaskError
    from merging.text import first_few

    found = Benchmark.load(args.folder.resolve())
    problems = [f"{name} is not what the manifest says." for name in altered(args.folder)]
    for task in found.tasks:
        for split in ("choosing", "reporting", *(["exemplars"] if found.count(task.key, "exemplars") else [])):
            try:
                found.images(task.key, split)
                found.head(task.key)
            except TaskError as error:
                problems.append(str(error))
    if problems:
        print(dumps({"problems": problems}) if args.json else first_few(problems, 20))
        return FAILED
    _show(found, args)
    return DONE


def _show(found: Benchmark, args: argparse.Namespace) -> None:
    """Say what a benchmark holds, and what is to be known of how it was made."""
    import json

    from merging.benchmarks.build.write import MANIFEST

    said = json.loads((args.folder / MANIFEST).read_bytes())
    if args.json:
        print(dumps({"folder": found.folder, "digest": found.digest, "manifest": said}))
        return
    rows: list[tuple[str, ...]] = [("task", "classes", "exemplars", "choosing", "reporting", "expert")]
    for task in found.tasks:
        counts = (str(found.count(task.key, split)) for split in ("exemplars", "choosing", "reporting"))
        rows.append((task.key, str(len(task.class_names)), *counts, "yes" if task.has_expert else ""))
    print(columns(rows))
    for key, about in said.get("tasks", {}).items():
        damaged = [f"{about['damaged']} damaged images were left out: {'; '.join(about['damaged_images'])}"]
        for line in (*about.get("cautions", ()), *(damaged if about.get("damaged") else ())):
            print(f"{key}: {line}")
    for line in said.get("cautions", ()):
        print(line)
    print(f"Use it: MERGESCOPE_BENCHMARK={found.folder}")


def _look(args: argparse.Namespace, stop: Event) -> int:
    from merging.datasets.opening import open_data
    from merging.text import first_few

    data = open_data(args.path, image=args.image_column, label=args.label_column)
    parts = {part: len(labels) for part, labels in data.parts.items()}
    if args.json:
        print(dumps({"kind": data.kind, "parts": parts, "classes": data.classes, "class_names": data.class_names}))
        return DONE
    print(
        f"{data.kind}: {', '.join(f'{part} {count:,}' for part, count in parts.items())} images, {data.classes} classes"
    )
    classes = first_few(data.class_names, 10) if data.class_names else "Classes are numbers; give their names."
    print("\n".join((classes, *data.notes)))
    return DONE


def _score(args: argparse.Namespace, stop: Event) -> int:
    from merging.benchmarks.cached_features import CachedFeatures
    from merging.clip.heads import read_head
    from merging.formats.opening import open_checkpoint

    cached = CachedFeatures.load(args.features)
    head = read_head(args.head, None, cached.features.shape[1])
    found = cached.score(open_checkpoint(args.model), head.rows)
    print(
        dumps(found) if args.json else f"{percent(found['accuracy'], found['low'], found['high'])}, {found['n']} images"
    )
    return DONE

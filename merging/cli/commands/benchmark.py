"""The command ``benchmark``: make a benchmark folder, check one, describe a data set, score features."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.base.text import percent_with_interval
from merging.cli.benchmark_options import build_description, description_options
from merging.cli.call import Call
from merging.cli.exit_codes import DONE, FAILED
from merging.cli.option_types import PATH
from merging.cli.options import Command, OrderedGroup, argument, device_option, events_option, nice_option, option
from merging.cli.output import encode_json, format_columns, report_progress
from merging.models.formats.model_sources import ModelRef

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark

MAKING_PHASE, EVALUATING_PHASE = "Making", "Evaluating"


@click.group(cls=OrderedGroup, no_args_is_help=False, subcommand_metavar="ACTION ...")
def benchmark() -> None:
    """Make a benchmark folder from your own data, or check one."""


@benchmark.command(cls=Command)
@argument("folder", type=PATH, help="the folder to write")
@description_options
@option("--overwrite", "--force", is_flag=True, help="replace a folder that this command has made")
@option("--evaluate", is_flag=True, help="also evaluate the pretrained model and every expert, for comparisons")
@option("--store", type=PATH, expose_value=False, help="accepted because the app passes it; nothing is written there")
@device_option
@nice_option
@events_option
@click.pass_obj
def make(call: Call, folder: Path, description: Mapping[str, Any], overwrite: bool, evaluate: bool, device: str) -> int:
    """Write a benchmark folder from data sets, experts and heads."""
    from merging.images.benchmarks.build import benchmark_folder
    from merging.study.runs.reference_models import find_references
    from merging.study.runs.run_store import Store

    plan, shares = build_description(description), {MAKING_PHASE: 1.0, EVALUATING_PHASE: float(evaluate)}
    with report_progress(call.events) as progress:
        contexts = call.context(progress, device).split(shares)

        def complete(made: Benchmark) -> None:
            if evaluate:
                library = Store(made.folder, libraries=(), dated=False)  # the app looks there for precomputed runs
                find_references(library, made, context=contexts[EVALUATING_PHASE])

        new_benchmark = benchmark_folder.write_benchmark(
            plan, folder, force=overwrite, complete=complete, context=contexts[MAKING_PHASE]
        )
    _print_benchmark(call, new_benchmark, folder)
    return DONE


@benchmark.command(cls=Command)
@argument("folder", type=PATH)
@click.pass_obj
def check(call: Call, folder: Path) -> int:
    """Check whether a benchmark folder is complete and unchanged."""
    from merging.base.errors import TaskError
    from merging.base.text import first_few
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.images.benchmarks.manifest import altered

    checked_benchmark = Benchmark.load(folder.resolve())
    problems = [f"{name} differs from the file in the manifest." for name in altered(folder)]
    for task in checked_benchmark.tasks:
        for split in (*task.splits, *(["exemplars"] if checked_benchmark.count_images(task.key, "exemplars") else [])):
            try:
                checked_benchmark.load_images(task.key, split)
                checked_benchmark.load_head(task.key)
            except TaskError as error:
                problems.append(str(error))
    problems = list(dict.fromkeys(problems))
    if problems:
        print(encode_json({"problems": problems}) if call.json else first_few(problems, 20))
        return FAILED
    _print_benchmark(call, checked_benchmark, folder)
    return DONE


@benchmark.command(cls=Command)
@argument("folder", type=PATH, help="a benchmark that refers to images and models in files")
@argument("files_folder", type=PATH, metavar="PLACE", help="the folder in which these files are now")
@click.pass_obj
def find(call: Call, folder: Path, files_folder: Path) -> int:
    """Find the moved files of images and models that a benchmark refers to."""
    from merging.images.benchmarks.benchmark import Benchmark

    with report_progress(None) as progress:
        problems = Benchmark.load(folder.resolve()).relink_files(
            files_folder.resolve(), call.context(progress).meter(0)
        )
    if call.json:
        print(encode_json({"problems": problems}))
    else:
        print("\n".join(problems) or "All files were found, and they are those from which the benchmark was made.")
    return FAILED if problems else DONE


def _print_benchmark(call: Call, benchmark: Benchmark, folder: Path) -> None:
    """Print the contents of a benchmark, and cautions about how it was made."""
    import json

    from merging.images.benchmarks.image_draws import read_draws
    from merging.images.benchmarks.manifest import MANIFEST

    manifest = json.loads((folder / MANIFEST).read_bytes())
    if call.json:
        print(encode_json({"folder": benchmark.folder, "digest": benchmark.digest, "manifest": manifest}))
        return
    rows: list[tuple[str, ...]] = [("task", "classes", "exemplars", "choosing", "reporting", "expert")]
    for task in benchmark.tasks:
        counts = (str(benchmark.count_images(task.key, split)) for split in ("exemplars", "choosing", "reporting"))
        rows.append((task.key, str(len(task.class_names)), *counts, "yes" if task.has_expert else ""))
    print(format_columns(rows))
    for key, draw in read_draws(benchmark.folder).items():
        print(f"{key}: reports on {draw.text} images")
    for key, task_facts in manifest.get("tasks", {}).items():
        damage_notes = [
            f"{task_facts['damaged']} damaged images were left out: {'; '.join(task_facts['damaged_images'])}"
        ]
        for line in (*task_facts.get("cautions", ()), *(damage_notes if task_facts.get("damaged") else ())):
            print(f"{key}: {line}")
    for line in manifest.get("cautions", ()):
        print(line)
    print(f"Use it: MERGESCOPE_BENCHMARK={benchmark.folder}")


@benchmark.command(cls=Command)
@argument("path", type=PATH)
@option("--image-column", metavar="NAME", help="of a Hugging Face data set, or an ending in tars")
@option("--label-column", metavar="NAME", help="of a Hugging Face data set, or an ending in tars")
@option("--configuration", metavar="NAME", help="of a Hugging Face data set that has several")
@click.pass_obj
def look(call: Call, path: Path, image_column: str | None, label_column: str | None, configuration: str | None) -> int:
    """Describe a data set, without writing anything."""
    from merging.base.text import first_few
    from merging.images.data_sets.data_set_formats import open_data

    data = open_data(path, image=image_column, label=label_column, configuration=configuration)
    counts = {part: len(labels) for part, labels in data.parts.items()}
    if call.json:
        facts = {"kind": data.kind, "parts": counts, "classes": data.class_count, "class_names": data.class_names}
        print(encode_json({**facts, "notes": data.notes}))
        return DONE
    counts_text = ", ".join(f"{part} {count:,}" for part, count in counts.items())
    print(f"{data.kind}: {counts_text} images, {data.class_count} classes")
    classes = first_few(data.class_names, 10) if data.class_names else "Classes are numbers; provide their names."
    print("\n".join((classes, *data.notes)))
    return DONE


@benchmark.command(cls=Command)
@argument("features", type=PATH, help="an npz with features, labels and model")
@option("--model", required=True, help="the checkpoint that computed them")
@option("--head", type=PATH, required=True, help="a head: head_*.pt or a file like it")
@click.pass_obj
def score(call: Call, features: Path, model: str, head: Path) -> int:
    """Compute the accuracy of a model from stored features."""
    from merging.engine.evaluation.feature_file import FeatureFile
    from merging.images.zero_shot_heads import read_head

    cached = FeatureFile.load(features)
    rows = read_head(head, None, cached.features.shape[1]).rows  # None: any number of classes
    scores = cached.score(ModelRef(model).open(), rows)
    share = percent_with_interval(scores["accuracy"], scores["low"], scores["high"])
    print(encode_json(scores) if call.json else f"{share}, {scores['n']} images")
    return DONE

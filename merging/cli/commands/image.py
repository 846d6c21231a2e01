"""The command ``image``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.base.errors import TaskError
from merging.base.text import first_few, printable
from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.options import Command, argument, device_option, option, store_option
from merging.cli.output import encode_json, format_columns, report_progress

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.one_image.image_tables import ImageTables
    from merging.study.one_image.named_towers import Towers
    from merging.study.one_image.studied_image import StudiedImage
    from merging.study.runs.run import Run

TABLES = ("lens", "accuracy", "attention", "attention_change", "drift", "restore", "restore_tokens", "occlude",
          "neighbors", "overlap")  # fmt: skip
DEFAULT_TABLES = tuple(
    name for name in TABLES if name not in ("attention", "restore_tokens")
)  # the two others are long
# The values of --find. At the depth of --depth: "turns", the answer becomes the final one; "parts", it begins to differ
# from the reference's; "drift", the distance from the reference; "mended", the reference's tokens make it right.
# "broken", at any depth: only the reference is right.
FIND_QUESTIONS = ("turns", "parts", "drift", "mended", "broken")
MAX_LISTED_IMAGES = 20  # in a text; --json lists all


@click.command(cls=Command)
@argument("run", help="the run's id, or at least its first six digits")
@argument("image", default="", help="TASK:SPLIT:N, such as digits:reporting:17, or a PNG, JPEG or WebP with --head")
@option("--head", default="", help="the data set whose classes are scored (default: that of the image)")
@option(
    "--against",
    default="",
    help="the reference: pretrained or experts/TASK (default: the task's expert if it was merged, else pretrained)",
)
@option("--table", "tables", multiple=True, type=click.Choice(TABLES), help="only these tables (repeatable)")
@option("--find", default="", help=f"list images instead: {', '.join(FIND_QUESTIONS)}; see --depth")
@option("--depth", type=int, default=0, show_default=True, help="for --find: 0 is before block 0, b after b blocks")
@store_option
@device_option
@click.pass_obj
def image(
    call: Call, run: str, image: str, head: str, against: str, tables: tuple[str, ...], find: str, depth: int,
    store: Path | None, device: str,
) -> int:  # fmt: skip
    """Follow one image through a run, block by block."""
    from merging.base import settings
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.one_image.image_tables import ImageTables
    from merging.study.one_image.named_towers import Towers
    from merging.study.runs.run_store import Store
    from merging.tasks.pack_folders import list_libraries

    if bool(image) == bool(find):
        raise TaskError("Name one image (TASK:SPLIT:N, or a file), or search for images with --find.")
    run_store, benchmark = Store(store, libraries=list_libraries(settings.benchmark_folder(), store)), Benchmark.load()
    stored_run = run_store.get_run(run_store.resolve_id(run))
    with report_progress(None) as progress:
        towers = Towers(run_store, benchmark, call.context(progress, device))
        if find:
            matches = _find_images(towers, stored_run, find, depth)
            print(encode_json(matches.to_dict("records")) if call.json else _format_matches(matches, benchmark))
            return DONE
        subject = _open_image(benchmark, image, head)
        facts = _collect_facts(ImageTables(towers), stored_run, subject, against, tables or DEFAULT_TABLES)
    print(encode_json(facts) if call.json else _format_facts(facts))
    return DONE


def _find_images(towers: Towers, run: Run, question: str, depth: int) -> pd.DataFrame:
    """The images that match a question of --find. The measurement ``depths`` is computed first if it is not stored."""
    from merging.study import measure
    from merging.study.measurements import depths
    from merging.study.measurements.find_images import find_by_depth

    measurement = measure.measure("depths", towers.store, towers.benchmark, run.id, context=towers.context)
    by_task = depths.read_depths(measurement, towers.benchmark)
    return find_by_depth(question, by_task, towers.benchmark, depth=depth)


def _open_image(benchmark: Benchmark, image: str, head: str) -> StudiedImage:
    from merging.images.own_image import MAX_BYTES
    from merging.study.one_image import studied_image

    path = Path(image)
    if not path.is_file():
        return studied_image.find_image(benchmark, image, head)
    if not head:
        keys = first_few([task.key for task in benchmark.tasks], 20)
        raise TaskError(f"{printable(path.name)} does not belong to a data set, so --head must name one: {keys}.")
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    return studied_image.read_image_file(benchmark, data, path.name, head)


def _collect_facts(
    image_tables: ImageTables, run: Run, subject: StudiedImage, against: str, table_names: tuple[str, ...]
) -> dict[str, Any]:
    """The facts to print: the image, the models, a sentence, and the named tables as lists of rows."""
    from merging.study.one_image.named_towers import model_key, reference_key
    from merging.study.one_image.nearest_images import list_same_domain

    task = subject.task.key
    key, reference = model_key(run, task), against or reference_key(run, task)
    neighbor_tasks = list_same_domain(image_tables.towers.benchmark, task, run.experts)
    table_builders = {
        "lens": lambda: _join_tables(image_tables.lens(subject, key), image_tables.lens(subject, reference)),
        "accuracy": lambda: image_tables.accuracy(subject, key, reference),
        "attention": lambda: _join_tables(
            image_tables.attention(subject, key), image_tables.attention(subject, reference)
        ),
        "attention_change": lambda: image_tables.attention_change(subject, key, reference),
        "drift": lambda: image_tables.drift(subject, key, reference),
        "restore": lambda: image_tables.restore(subject, key, reference),
        "restore_tokens": lambda: image_tables.restore(subject, key, reference, tokens=True),
        "occlude": lambda: image_tables.occlude(subject, key, reference),
        "neighbors": lambda: _join_tables(
            image_tables.neighbors(subject, key, neighbor_tasks),
            image_tables.neighbors(subject, reference, neighbor_tasks),
        ),
        "overlap": lambda: image_tables.overlap(subject, key, reference, neighbor_tasks),
    }
    label = None if subject.label is None else subject.class_name(subject.label)
    return {
        "image": subject.name, "head": task, "class": label, "run": run.id, "model": key, "reference": reference,
        "sentence": image_tables.sentence(subject, key, reference),
        # the first depths at which this image drifts more than 90 % of its data set
        "first_unusual_depths": image_tables.find_first_unusual_depths(subject, key, reference),
        "tables": {name: table_builders[name]().to_dict("records") for name in table_names},
    }  # fmt: skip


def _join_tables(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([first, second], ignore_index=True)


def _format_facts(facts: dict[str, Any]) -> str:
    """The sentence, and the probabilities after inserting the reference's tokens before each block."""
    lines = [f"{printable(facts['image'])}: {facts['sentence']}"]
    if rows := facts["tables"].get("restore"):
        followed_class = printable(str(rows[0]["followed"]))
        lines.append(
            f"Probability of “{followed_class}” with the tokens of {facts['reference']} inserted before each block:"
        )
        table_rows: list[tuple[str, ...]] = [("block", "class token", "patches", "all")]
        last_depth = max(row["depth"] for row in rows)
        for depth in range(last_depth + 1):
            shares = [f"{100 * row['probability']:.1f} %" for row in rows if row["depth"] == depth]
            table_rows.append(("output" if depth == last_depth else str(depth), *shares))
        lines.append(format_columns(table_rows, "  "))
    lines.append(f"Tables: {', '.join(facts['tables'])}; --json prints them.")
    return "\n".join(lines)


def _format_matches(matches: pd.DataFrame, benchmark: Benchmark) -> str:
    """The first images as a table, and the number of images."""
    from merging.images.benchmarks import image_draws

    rows: list[tuple[str, ...]] = [("image", "class", "answer", "value")]
    for row in matches.head(MAX_LISTED_IMAGES).to_dict("records"):
        rows.append((*(printable(str(row[name])) for name in ("image", "class", "answer")), f"{row['value']:.3g}"))
    split_name = image_draws.name_images(whole=image_draws.is_whole(benchmark.folder))
    count = f"{len(matches):,} images of the {split_name}; at most {MAX_LISTED_IMAGES} are listed, --json prints all."
    return f"{format_columns(rows)}\n{count}"

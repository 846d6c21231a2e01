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
from merging.cli.output import columns, encode_json, report_progress

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.one_image.image_tables import ImageTables
    from merging.study.one_image.named_towers import Towers
    from merging.study.one_image.studied_image import StudiedImage
    from merging.study.runs.run import Run

TABLES = ("lens", "accuracy", "attention", "attention_change", "drift", "restore", "restore_tokens", "occlude",
          "neighbors", "overlap")  # fmt: skip
USUAL_TABLES = tuple(name for name in TABLES if name not in ("attention", "restore_tokens"))  # the others are long
QUESTIONS = ("turns", "parts", "drift", "mended", "broken")  # of --find
MOST_SHOWN = 20  # most images that are listed as text


@click.command(cls=Command)
@argument("run", help="the run's id, or six of its first digits")
@argument("image", default="", help="TASK:SPLIT:N, such as digits:reporting:17, or a PNG, JPEG or WebP with --head")
@option("--head", default="", help="the data set whose classes are asked for (default: the image's own)")
@option("--against", default="", help="pretrained or experts/TASK (default: the expert in domain, else pretrained)")
@option("--table", "tables", multiple=True, type=click.Choice(TABLES), help="only these tables (repeatable)")
@option("--find", default="", help=f"list images instead: {', '.join(QUESTIONS)}; see --depth")
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

    if bool(image) == bool(find):
        raise TaskError("Name one image (TASK:SPLIT:N, or a file), or ask for some with --find.")
    runs, benchmark = Store(store, libraries=(settings.benchmark_folder() / "runs",)), Benchmark.load()
    opened = runs.get_run(runs.resolve_id(run))
    with report_progress(None) as progress:
        towers = Towers(runs, benchmark, call.context(progress, device))
        if find:
            listed = _find_images(towers, opened, find, depth)
            print(encode_json(listed.to_dict("records")) if call.json else _listing(listed, benchmark))
            return DONE
        studied = _open_image(benchmark, image, head)
        facts = _facts(ImageTables(towers), opened, studied, against, tables or USUAL_TABLES)
    print(encode_json(facts) if call.json else _text(facts))
    return DONE


def _find_images(towers: Towers, run: Run, question: str, depth: int) -> pd.DataFrame:
    """The images that match a question, by a stored measurement, which is computed first if it is missing."""
    from merging.study import measure
    from merging.study.measurements import depths
    from merging.study.measurements.find_images import find_by_depth

    measured = measure.measure("depths", towers.store, towers.benchmark, run.id, context=towers.context)
    by_task = depths.read_depths(measured, towers.benchmark)
    return find_by_depth(question, by_task, towers.benchmark, depth=depth)


def _open_image(benchmark: Benchmark, image: str, head: str) -> StudiedImage:
    from merging.images.own_image import MOST_BYTES
    from merging.study.one_image import studied_image

    path = Path(image)
    if not path.is_file():
        return studied_image.find_image(benchmark, image, head)
    if not head:
        keys = first_few([task.key for task in benchmark.tasks], 20)
        raise TaskError(f"{printable(path.name)} is in no data set, so --head has to name one: {keys}.")
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    return studied_image.read_image_file(benchmark, data, path.name, head)


def _facts(made: ImageTables, run: Run, studied: StudiedImage, against: str, names: tuple[str, ...]) -> dict[str, Any]:
    """The printed facts: the image, the models, the sentence and the tables."""
    from merging.study.one_image.named_towers import model_key, reference_key
    from merging.study.one_image.nearest_images import same_domain

    task = studied.task.key
    key, reference = model_key(run, task), against or reference_key(run, task)
    near = same_domain(made.towers.benchmark, task, run.experts)
    calls = {
        "lens": lambda: _join_tables(made.lens(studied, key), made.lens(studied, reference)),
        "accuracy": lambda: made.accuracy(studied, key, reference),
        "attention": lambda: _join_tables(made.attention(studied, key), made.attention(studied, reference)),
        "attention_change": lambda: made.attention_change(studied, key, reference),
        "drift": lambda: made.drift(studied, key, reference),
        "restore": lambda: made.restore(studied, key, reference),
        "restore_tokens": lambda: made.restore(studied, key, reference, tokens=True),
        "occlude": lambda: made.occlude(studied, key, reference),
        "neighbors": lambda: _join_tables(made.neighbors(studied, key, near), made.neighbors(studied, reference, near)),
        "overlap": lambda: made.overlap(studied, key, reference, near),
    }
    label = None if studied.label is None else studied.class_name(studied.label)
    return {
        "image": studied.name, "head": task, "class": label, "run": run.id, "model": key, "reference": reference,
        "sentence": made.sentence(studied, key, reference), "first_past": made.first_past(studied, key, reference),
        "tables": {name: calls[name]().to_dict("records") for name in names},
    }  # fmt: skip


def _join_tables(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([one, other], ignore_index=True)


def _text(facts: dict[str, Any]) -> str:
    """The sentence, and the probabilities after restoring tokens before each block."""
    lines = [f"{printable(facts['image'])}: {facts['sentence']}"]
    if rows := facts["tables"].get("restore"):
        followed = printable(str(rows[0]["followed"]))
        lines.append(f"Probability of “{followed}” with tokens of {facts['reference']} put in before each block:")
        cells: list[tuple[str, ...]] = [("block", "class token", "patches", "all")]
        last = max(row["depth"] for row in rows)
        for depth in range(last + 1):
            shares = [f"{100 * row['probability']:.1f} %" for row in rows if row["depth"] == depth]
            cells.append(("output" if depth == last else str(depth), *shares))
        lines.append(columns(cells, "  "))
    lines.append(f"Tables: {', '.join(facts['tables'])}; --json prints them.")
    return "\n".join(lines)


def _listing(listed: pd.DataFrame, benchmark: Benchmark) -> str:
    """The first images as a table, and how many there are."""
    from merging.images.benchmarks import image_draws

    rows: list[tuple[str, ...]] = [("image", "class", "answer", "value")]
    for row in listed.head(MOST_SHOWN).to_dict("records"):
        rows.append((*(printable(str(row[name])) for name in ("image", "class", "answer")), f"{row['value']:.3g}"))
    of = image_draws.part(whole=image_draws.is_whole(benchmark.folder))
    return f"{columns(rows)}\n{len(listed):,} images of the {of}; at most {MOST_SHOWN} are listed, --json has all."

"""Plans and tables as text, Markdown, CSV and plain data."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from merging.base.text import duration_text, escape_markdown, markdown_table, size_text
from merging.sharing.published.choice import ALL_IMAGES, Choice, make_choice
from merging.sharing.published.comparison_table import ComparedAverage, PublishedTable, TableRow, TaskLine
from merging.sharing.published.experiment_catalogue import Experiment
from merging.sharing.published.fetch_plan import DEFAULT_RATE, UNPINNED_TEXT, FetchPlan, PlannedPart

COMPUTED_MARK = "*"  # marks a printed average that was computed from printed parts
LEGEND = (
    "Averages in percent with 95% intervals over the images. Printed values in brackets are not compared; those marked "
    "* were computed from printed parts. Differences are in points."
)


def plan_rows(plan: FetchPlan) -> Sequence[tuple[str, ...]]:
    """The head, a row for each model in the user's folder, and a row for each part of a repository."""
    head = ("for", "repository", "files", "size", "here", "license", "terms", "commit")
    own_rows = [
        (one.purpose, one.folder, one.file, size_text(one.nbytes), "all", "", "", "") for one in plan.own_models
    ]
    return [head, *own_rows] + [
        (
            part.purpose,
            part.repository,
            ", ".join(part.files) if len(part.files) < 3 else f"{len(part.files)} files",
            _format_size(part),
            "all" if part.is_complete else size_text(part.local_bytes) if part.local_bytes else "",
            part.license,
            "to be accepted" if part.gated else "",
            part.revision[:12] if part.revision else "–",
        )
        for part in plan.parts
    ]


def plan_sentences(plan: FetchPlan) -> list[str]:
    """The totals of a plan, and its warnings and notes."""
    about = "" if plan.has_exact_sizes else "about "
    rate = "the rate of the last download" if plan.rate_measured else f"at {size_text(DEFAULT_RATE)}/s"
    unsized_parts = [part.purpose for part in plan.parts if part.nbytes is None and not part.is_complete]
    lines = [
        f"To fetch from {plan.host}: {about}{size_text(plan.bytes_to_fetch)}; in the cache already: "
        f"{size_text(plan.local_bytes)}.",
        f"Disk: {about}{size_text(plan.bytes_to_fetch)} needed in {plan.cache_folder}, "
        f"{size_text(plan.free_bytes)} free.",
        f"Time: {about}{duration_text(plan.fetch_seconds)} to fetch ({rate}).",
        f"Computing: about {duration_text(plan.compute_seconds)} on {plan.device} for {plan.images:,} images and "
        f"{len(plan.rows)} rows ({'from the measured speed' if plan.speed_measured else 'an estimate'}).",
    ]
    if plan.heavy:
        lines.append("This tower needs a GPU: on a CPU it takes many times as long as ViT-B/32.")
    if plan.is_complete:
        lines = ["All files are in the cache already.", *lines[3:]]
    if plan.bytes_to_fetch > plan.free_bytes:
        lines.append("The free space is not enough. Set HF_HOME to a folder on a disk with more.")
    if any(part.revision is None for part in plan.parts):
        lines.append(f"Commits shown as – are {UNPINNED_TEXT}.")
    if unsized_parts:
        lines.append(f"Not known in advance: the size of {', '.join(unsized_parts)}.")
    if plan.left_out:
        lines.append(f"Left out, as they need exemplars (--exemplars N): {', '.join(plan.left_out)}.")
    return lines + [f"Note: {note}" for note in plan.notes]


def command_words(action: str, experiment: Experiment, choice: Choice) -> list[str]:
    """The words after ``mergescope`` that run an action on a choice; default options are omitted."""
    default_choice = make_choice(experiment)
    words = [
        "published",
        action,
        experiment.key,
        "--images",
        ALL_IMAGES if choice.images is None else str(choice.images),
    ]
    words += ["--imagenet"] if choice.imagenet else ["--ood"] if choice.outside else []
    words += ["--rows", ",".join(choice.rows)] if choice.rows != default_choice.rows else []
    words += ["--experts", choice.experts] if choice.experts != default_choice.experts else []
    words += ["--tasks", ",".join(choice.tasks)] if choice.tasks else []
    words += ["--wording", choice.wording] if choice.wording != default_choice.wording else []
    words += ["--exemplars", str(choice.exemplars)] if choice.exemplars else []
    return words + (["--seed", str(choice.seed)] if choice.seed else [])


def plan_data(plan: FetchPlan) -> dict[str, Any]:
    """A plan as plain data; sizes in bytes, times in seconds."""
    return {
        "experiment": plan.experiment,
        "title": plan.title,
        "host": plan.host,
        "repositories": [
            {
                "repository": part.repository, "kind": part.kind, "purpose": part.purpose, "files": list(part.files),
                "bytes": part.nbytes, "exact": part.is_exact, "here": part.local_bytes, "complete": part.is_complete,
                "license": part.license, "gated": part.gated,
                "revision": part.revision, "pinned": part.revision or UNPINNED_TEXT, "note": part.note,
            }
            for part in plan.parts
        ],
        "own": [asdict(one) for one in plan.own_models],
        "to_fetch": plan.bytes_to_fetch, "exact": plan.has_exact_sizes, "here": plan.local_bytes,
        "free": plan.free_bytes,
        "place": str(plan.cache_folder), "fetch_seconds": plan.fetch_seconds, "rate": plan.rate,
        "compute_seconds": plan.compute_seconds, "speed_measured": plan.speed_measured,
        "device": plan.device, "images": plan.images, "passes": plan.passes,
        "rows": list(plan.rows), "left_out": list(plan.left_out), "notes": list(plan.notes),
    }  # fmt: skip


def _format_size(part: PlannedPart) -> str:
    if part.nbytes is None:
        return "not known"
    return f"{'' if part.is_exact else '≈ '}{size_text(part.nbytes)}"


# The table


def table_rows(table: PublishedTable) -> list[tuple[str, ...]]:
    """The head and a row for each row of the table: averages, printed values, differences and verdicts."""
    outside = any(row.out_of_domain for row in table.rows)
    head = ["row", "ours [95%]", "printed", "difference", "verdict", "relative to the row above"]
    head += ["out of domain [95%]", "printed", "difference", "verdict", "H-score", "printed"] if outside else []
    rows = [(*head, "source")]
    for row in table.rows:
        cells = [row.title, *_format_average_cells(row.in_domain), _format_change(row)]
        if outside:
            cells += _format_average_cells(row.out_of_domain) if row.out_of_domain else [""] * 4
            ours, printed = row.h_score or (None, None)
            cells += ["" if ours is None else f"{ours:.1f}", "" if printed is None else f"{printed:.1f}"]
        rows.append((*cells, row.source))
    return rows


def task_rows(table: PublishedTable) -> Sequence[tuple[str, ...]]:
    """The head and a line for each task of each row."""
    head = ("row", "task", "domain", "ours [95%]", "n", "printed", "difference", "chance")
    return [head] + [
        (
            row.title,
            line.title,
            "in" if line.inside else "out",
            f"{line.ours:.1f} [{line.low:.1f}, {line.high:.1f}]",
            f"{line.n:,}",
            "" if line.printed is None else _format_printed(f"{line.printed:g}", row.compared),
            "" if line.printed is None else f"{line.ours - line.printed:+.1f}",
            "" if line.chance is None else f"{line.chance:.1f}",
        )
        for row in table.rows
        for line in row.tasks
    ]


def table_sentences(table: PublishedTable) -> list[str]:
    """The models and images of the table, its notes, and its legend."""
    return [
        f"{table.title}: {table.models}, {table.tower}; {table.images}, seed {table.seed}, {table.device}.",
        *table.notes,
        LEGEND,
    ]


def table_markdown(table: PublishedTable) -> str:
    """The table as a Markdown document; all text is escaped."""
    parts = [f"# {escape_markdown(table.experiment)}", *map(escape_markdown, table_sentences(table))]
    for rows in (table_rows(table), task_rows(table)):
        head, *lines = [[escape_markdown(cell) for cell in row] for row in rows]
        parts.append(markdown_table(head, lines))
    return "\n\n".join(parts) + "\n"


def table_csv(table: PublishedTable) -> str:
    """The table as CSV: a line for each average and each task, in percent, in full precision."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("row", "over", "ours", "low", "high", "n", "printed", "difference", "verdict", "reason", "source"))
    for row in table.rows:
        for over, compared in (("in domain", row.in_domain), ("out of domain", row.out_of_domain)):
            if compared:
                ours, verdict = compared.ours, compared.verdict
                writer.writerow(
                    (row.key, over, ours.mean, ours.low, ours.high, ours.n, compared.printed, verdict.difference,
                     verdict.word, verdict.reason, row.source)
                )  # fmt: skip
        for line in row.tasks:
            difference = None if line.printed is None else line.ours - line.printed
            writer.writerow(
                (row.key, line.task, line.ours, line.low, line.high, line.n, line.printed, difference, "", "", "")
            )
    return stream.getvalue()


def table_data(table: PublishedTable) -> dict[str, Any]:
    """The table as plain data; accuracies in percent."""
    return {
        "experiment": table.experiment, "title": table.title, "models": table.models, "tower": table.tower,
        "images": table.images, "seed": table.seed, "device": table.device,
        "gate": {"passed": table.gate.passed, "near": list(table.gate.near), "far": list(table.gate.far)},
        "rows": [_collect_row_data(row) for row in table.rows],
        "notes": list(table.notes),
    }  # fmt: skip


def _collect_row_data(row: TableRow) -> dict[str, Any]:
    return {
        "key": row.key, "title": row.title, "run": row.run, "source": row.source, "compared": row.compared,
        "in_domain": _collect_average_data(row.in_domain), "out_of_domain": _collect_average_data(row.out_of_domain),
        "h_score": None if row.h_score is None else {"ours": row.h_score[0], "printed": row.h_score[1]},
        "change": None if row.change is None else dict(zip(("points", "low", "high"), row.change, strict=True)),
        "tasks": [_collect_task_data(line) for line in row.tasks],
    }  # fmt: skip


def _collect_average_data(compared: ComparedAverage | None) -> Mapping[str, Any] | None:
    if compared is None:
        return None
    ours, verdict = compared.ours, compared.verdict
    return {
        "ours": ours.mean, "low": ours.low, "high": ours.high, "n": ours.n, "printed": compared.printed,
        "computed": compared.computed, "difference": verdict.difference, "verdict": verdict.word,
        "reason": verdict.reason, "differ_most": list(verdict.tasks),
    }  # fmt: skip


def _collect_task_data(line: TaskLine) -> dict[str, Any]:
    return {
        "task": line.task, "title": line.title, "in_domain": line.inside, "ours": line.ours, "low": line.low,
        "high": line.high, "n": line.n, "printed": line.printed, "chance": line.chance,
    }  # fmt: skip


def _format_average_cells(compared: ComparedAverage) -> Sequence[str]:
    ours, verdict = compared.ours, compared.verdict
    printed = "" if compared.printed is None else f"{compared.printed:.1f}{COMPUTED_MARK if compared.computed else ''}"
    return [
        f"{ours.mean:.1f} [{ours.low:.1f}, {ours.high:.1f}]",
        _format_printed(printed, verdict.is_judged),
        "" if verdict.difference is None else f"{verdict.difference:+.1f}",
        verdict.text,
    ]


def _format_printed(text: str, is_compared: bool) -> str:
    return text if is_compared or not text else f"({text})"


def _format_change(row: TableRow) -> str:
    if row.change is None:
        return ""
    points, low, high = row.change
    return f"{points:+.1f} [{low:+.1f}, {high:+.1f}]"

"""Accuracies that papers print, in percent and with their digits: the rows of ``published.csv``.

They belong to other models and other images than the bundled benchmark's, so the app never shows them as its own
measurements. A chain has only the parameters that its paper states.

A row of the file is one line of a paper's table for one model. An empty cell is a value that is not printed. ``kind``
is one of ``ROW_KINDS``. ``paper`` is one of ``SOURCES``, ``tables`` the position in it. ``chain`` has the form of the
command line, 'lwptv:prune_ratio=0.7;ties:density=0.2', where a number with a decimal point is not an integer;
'+surgery:rank=16' at its end is an adapt. ``unstated`` is "yes" or empty. ``computed`` names the averages of
the row that were computed from parts, because the source publishes only the parts. ``normalized`` is in the file if the
source prints it, and is computed otherwise. ``seconds`` is the printed time of a merge. The other fields are those of
``Figure`` and ``Printed``.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from merging.base.errors import RecipeError
from merging.base.text import did_you_mean

PUBLISHED_FILE = Path(__file__).with_name("published.csv")
B32, B16, L14, H14 = "ViT-B/32", "ViT-B/16", "ViT-L/14", "ViT-H/14"
TOWER_NAMES = (B32, B16, L14, H14)
IN_DOMAIN_TASKS = ("SUN397", "Cars", "RESISC45", "EuroSAT", "SVHN", "GTSRB", "MNIST", "DTD")
OUT_OF_DOMAIN_TASKS = (
    "CIFAR10", "CIFAR100", "EMNIST", "FashionMNIST", "FER2013", "Flowers102", "Food101", "KMNIST", "OxfordIIITPet",
    "PCAM", "RenderedSST2", "STL10", "ImageNet",
)  # fmt: skip
AVERAGE_DIFFERS = "the printed average is not that of the printed accuracies"  # a note of a row
SOURCES = {
    "LwPTV": "Zhang et al. Merging smarter, generalizing better. NeurIPS 2025",
    "LOT": "Sun et al. Towards minimizing feature drift in model merging. NeurIPS 2025",
    "DRM": "Chaichana et al. Decom-Renorm-Merge. 2025",
    "CAT preprint": "Task arithmetic in trust region. arXiv:2501.15065v1",
    "TSV-M": "Averages of the authors' per-task result files",
    "WUDI": "The authors' README",
    "AdaMerging": "Logs in the authors' repository",
    "Surgery": "Logs in the authors' repository",
    "E-WEMoE": "Averages of the authors' result files, on FusionBench's checkpoints",
    "FusionBench": "Results in the documentation of FusionBench, on checkpoints of its own",
}
ILHARCO = "Ilharco et al."  # the authors of the experts that most papers merge
# Kinds of rows: merged models; models that are not merged, as ``study.runs`` names them (each task with its own expert,
# the pretrained model, one model trained on all tasks); and experts by other authors, which have no source.
MERGE, INDIVIDUAL, OTHER_EXPERTS = "merge", "individual", "experts"
REFERENCE_KINDS = ("pretrained", INDIVIDUAL, "multitask")
ROW_KINDS = (MERGE, *REFERENCE_KINDS, OTHER_EXPERTS)
AVERAGES = ("in_domain", "out_of_domain", "h_score")
NORMALIZED = "normalized"
COLUMNS = (
    "kind", "paper", "tables", "name", "model", "experts", "chain", "exemplars", "note", "unstated", *AVERAGES,
    NORMALIZED, "computed", "seconds", *IN_DOMAIN_TASKS, *OUT_OF_DOMAIN_TASKS,
)  # fmt: skip

Row = Mapping[str, str]
Steps = tuple[tuple[str, Mapping[str, Any]], ...]


class Printed(NamedTuple):
    """Averages in and out of domain, their H-score, and the accuracies behind the averages, if printed."""

    in_domain: float
    out_of_domain: float | None = None
    h_score: float | None = None
    tasks: tuple[float, ...] = ()  # in the order of IN_DOMAIN_TASKS
    outside: tuple[float, ...] = ()  # in the order of OUT_OF_DOMAIN_TASKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of a paper's table for one model.

    ``name`` is the paper's name of the row, ``chain`` its steps with the parameters that the paper states, ``adapt``
    the step on top of the merged model if there is one, ``experts`` the authors of the merged checkpoints.
    ``exemplars`` is their number per task, None if it is not stated or there are none. ``note`` adds facts that no
    chain can express. If ``uses_unstated_values``, the figure depends on values of parameters that the paper does not
    print. ``normalized_by_source`` is the normalized accuracy that the source prints. ``computed_averages`` has the
    averages that were computed from parts that the source publishes.
    """

    name: str
    chain: Steps
    model: str
    printed: Printed
    source: str
    adapt: Steps = ()
    experts: str = ILHARCO
    exemplars: int | None = None
    note: str = ""
    uses_unstated_values: bool = False
    normalized_by_source: float | None = None
    computed_averages: frozenset[str] = frozenset()
    seconds: float | None = None  # duration of the merge, on a device that the source may not state

    @property
    def normalized(self) -> float | None:
        """Mean over tasks of the accuracy divided by the expert's, in percent; None if a part is not printed."""
        expert_accuracies = EXPERTS.get((self.experts, self.model), Printed(0.0)).tasks
        if self.normalized_by_source is not None or not (expert_accuracies and self.printed.tasks):
            return self.normalized_by_source
        ratios = [merged / expert for merged, expert in zip(self.printed.tasks, expert_accuracies, strict=True)]
        return 100 * sum(ratios) / len(ratios)

    def is_printed(self, average: str) -> bool:
        """Whether the source prints a value of AVERAGES or NORMALIZED, which otherwise is computed or not known."""
        values = {NORMALIZED: self.normalized_by_source, **self.printed._asdict()}
        return values[average] is not None and average not in self.computed_averages

    def matches_chain(
        self, steps: Iterable[tuple[str, Mapping[str, Any]]], adapt: Iterable[tuple[str, Mapping[str, Any]]] = ()
    ) -> bool:
        """Whether the figure's chain has these steps and values; values that its paper does not state may differ."""
        return _has_stated_values(self.chain, tuple(steps)) and _has_stated_values(self.adapt, tuple(adapt))


def _has_stated_values(stated: Steps, run_steps: Steps) -> bool:
    """Whether the steps of a run are the stated ones, with every stated value."""
    return [key for key, _ in stated] == [key for key, _ in run_steps] and all(
        values.get(name) == value
        for (_, known), (_, values) in zip(stated, run_steps, strict=True)
        for name, value in known.items()
    )


def read_figures(path: Path = PUBLISHED_FILE) -> dict[str, tuple[Figure, ...]]:
    """The figures of each kind in a file, in the file's order.

    Raises:
        RecipeError: columns other than ``COLUMNS``, or a malformed cell; names the file, the line and the field.
    """
    figures: dict[str, list[Figure]] = {kind: [] for kind in ROW_KINDS}
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        if tuple(next(lines, ())) != COLUMNS:
            raise RecipeError(f"{path.name}, line 1: the columns must be {', '.join(COLUMNS)}.")
        for cells in lines:
            try:
                if len(cells) != len(COLUMNS):
                    raise RecipeError(f"{len(cells)} cells instead of {len(COLUMNS)}.")
                row = dict(zip(COLUMNS, cells, strict=True))
                figures[_parse_choice(row, "kind", ROW_KINDS)].append(_parse_figure(row))
            except RecipeError as error:
                raise RecipeError(f"{path.name}, line {lines.line_num}: {error}") from None
    return {kind: tuple(rows) for kind, rows in figures.items()}


def _parse_figure(row: Row) -> Figure:
    source = ""
    if row["kind"] != OTHER_EXPERTS:
        paper, tables = _parse_choice(row, "paper", SOURCES), row["tables"]
        source = f"{paper}, {tables}" if tables else paper
    for field in ("name", "experts"):
        if not row[field]:
            raise RecipeError(f"field {field}: it is empty.")
    if bool(row["chain"]) != (row["kind"] == MERGE):
        raise RecipeError("field chain: merges have a chain, and other kinds have none.")
    return Figure(
        name=row["name"],
        chain=parse_printed_chain(row["chain"].partition("+")[0]),
        adapt=parse_printed_chain(row["chain"].partition("+")[2]),
        model=_parse_choice(row, "model", TOWER_NAMES),
        printed=_parse_printed(row),
        source=source,
        experts=row["experts"],
        exemplars=_parse_count(row, "exemplars"),
        note=row["note"],
        uses_unstated_values=_parse_choice(row, "unstated", ("", "yes")) == "yes",
        normalized_by_source=_parse_percent(row, NORMALIZED),
        computed_averages=_parse_computed(row),
        seconds=parse_number(row, "seconds", math.inf),
    )


def _parse_printed(row: Row) -> Printed:
    in_domain, out_of_domain, h_score = (_parse_percent(row, name) for name in AVERAGES)
    if in_domain is None:
        raise RecipeError("field in_domain: it is empty.")
    return Printed(
        in_domain,
        out_of_domain,
        h_score,
        _parse_accuracies(row, IN_DOMAIN_TASKS),
        _parse_accuracies(row, OUT_OF_DOMAIN_TASKS),
    )


def _parse_computed(row: Row) -> frozenset[str]:
    names = row["computed"].split()
    for name in names:
        if name not in (*AVERAGES, NORMALIZED) or not row[name]:
            raise RecipeError(f"field computed: {name!r} is not an average that the row has.")
    return frozenset(names)


def _parse_accuracies(row: Row, data_sets: tuple[str, ...]) -> tuple[float, ...]:
    """The accuracies of all data sets; empty if none of them is printed."""
    accuracies = {name: accuracy for name in data_sets if (accuracy := _parse_percent(row, name)) is not None}
    if accuracies and (missing := [name for name in data_sets if name not in accuracies]):
        raise RecipeError(f"field {missing[0]}: it is empty, and {next(iter(accuracies))} is not.")
    return tuple(accuracies.values())


def _parse_choice(row: Row, field: str, allowed: Collection[str]) -> str:
    if (text := row[field]) not in allowed:
        names = ", ".join(map(repr, allowed))
        raise RecipeError(f"field {field}: {text!r} is not one of {names}.{did_you_mean(text, allowed)}")
    return text


def _parse_percent(row: Row, field: str) -> float | None:
    return parse_number(row, field, 100)


def parse_number(row: Row, field: str, maximum: float) -> float | None:
    """The number in a field, None if the field is empty. Raises RecipeError unless it is from 0 to ``maximum``."""
    if not (text := row[field]):
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= maximum:
        limits = f"from 0 to {maximum:g}" if maximum < math.inf else "of at least 0"
        raise RecipeError(f"field {field}: {text!r} is not a number {limits}.")
    return number


def _parse_count(row: Row, field: str) -> int | None:
    if not (text := row[field]):
        return None
    if not text.isdecimal():
        raise RecipeError(f"field {field}: {text!r} is not a whole number.")
    return int(text)


def parse_printed_chain(text: str) -> Steps:
    """The steps of a chain; the text of a value decides its type, because the registry is not loaded yet."""
    steps = []
    for step in filter(None, text.split(";")):
        key, _, params = step.partition(":")
        parts = [part.partition("=") for part in filter(None, params.split(","))]
        if not key or not all(name and value for name, _, value in parts):
            raise RecipeError(f"field chain: a step is `ties` or `ties:density=0.2,scaling=0.3`; got {step!r}.")
        steps.append((key, {name: _parse_value(value) for name, _, value in parts}))
    return tuple(steps)


def _parse_value(text: str) -> Any:
    """True from 'true', 0.2 from '0.2', 300 from '300'; any other text unchanged."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def list_figures_of_paper(paper: str) -> tuple[Figure, ...]:
    """The figures of merges that one of ``SOURCES`` prints."""
    return tuple(figure for figure in FIGURES if figure.source.split(",")[0] == paper)


def list_figures_with_method(role: str, key: str) -> tuple[Figure, ...]:
    """The figures whose chain has a method in a role."""
    if role == "adapt":
        return tuple(figure for figure in FIGURES if key in (step for step, _ in figure.adapt))
    steps = slice(None, -1) if role == "edit" else slice(-1, None)  # the merge is the last step of a chain
    return tuple(figure for figure in FIGURES if key in (step for step, _ in figure.chain[steps]))


_BY_KIND = read_figures()
FIGURES = _BY_KIND[MERGE]
# Models that are not merged, by the kinds of reference models of ``study.runs``.
REFERENCES: Mapping[str, tuple[Figure, ...]] = {kind: _BY_KIND[kind] for kind in REFERENCE_KINDS}
# Accuracy of each task's own expert, by the experts' authors and by model, because papers do not share checkpoints. If
# only the average is known, ``tasks`` is empty.
EXPERTS: Mapping[tuple[str, str], Printed] = {
    (figure.experts, figure.model): figure.printed for figure in (*_BY_KIND[INDIVIDUAL], *_BY_KIND[OTHER_EXPERTS])
}
FROM_LWPTV, FROM_DRM = list_figures_of_paper("LwPTV"), list_figures_of_paper("DRM")

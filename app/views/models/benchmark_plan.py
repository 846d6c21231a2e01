"""What a benchmark will be, before anything is computed: what each data set was recognized as, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from app import text
from app.reading import data
from merging.checkpoints import references as model_references
from merging.errors import MergingError
from merging.text import first_few, size_text
from viz.text import clean_text, plural

ORDER = ("train", "validation", "test", "whole")  # of the parts of a data set
FRESH = 60.0  # seconds for which a look at data sets counts


@dataclass(frozen=True)
class Summary:
    """Rows of the table, one for each task; bytes and counts in all; what to know."""

    rows: list[dict[str, Any]]
    images: int
    prompts: int
    nbytes: int
    cautions: list[str]


@dataclass(frozen=True)
class Looked:
    """What a data set is in a sentence, plain text of anybody's; or the problem. Its class names, if it has some."""

    said: str
    class_names: tuple[str, ...]
    problem: str = ""


def look(reference: str) -> Looked:
    """What a data set is by itself."""
    return _look(reference, data.file_state(reference))


@st.cache_data(max_entries=data.KEPT, ttl=FRESH, show_spinner="Looking at the data set …")
def _look(reference: str, state: tuple[int, ...]) -> Looked:
    from merging.datasets.opening import open_data

    try:
        found = open_data(model_references.locate(reference))
    except (MergingError, OSError) as error:
        return Looked("", (), str(error))
    counts = ", ".join(f"{part} {len(found.parts[part]):,}" for part in ORDER if part in found.parts)
    names = found.class_names or ()
    called = first_few(names, 5) if names else "classes are numbers, so their names have to be given"
    kind = found.kind[0].upper() + found.kind[1:]
    return Looked(f"{kind}; images: {counts}; {found.classes} classes: {called}.", tuple(names))


def fitting(name: str, names: Sequence[str]) -> str | None:
    """The key of the published prompts for a data set of that name, if its classes are those."""
    from merging.catalog.data_sets import published
    from merging.clip.prompt_sets import prompts
    from merging.errors import TaskError

    if not (key := published(name)) or not names:
        return key
    try:
        prompts(key).match(names)
    except TaskError:
        return None
    return key


def show(plain: Mapping[str, Any], out: Path) -> None:
    """The table, what it takes, and cautions.

    Raises:
        TaskError, CheckpointError: what cannot be used, and why.
    """
    from merging.files.plain_yaml import write_yaml

    references = [plain["pretrained"], plain.get("text", "")]
    references += [task.get(name, "") for task in plain["tasks"].values() for name in ("images", "expert", "head")]
    found = _summary(write_yaml(dict(plain)), tuple(data.file_state(one) for one in references if one), out)
    st.markdown("**What was recognized**")
    st.dataframe(
        [{name: clean_text(value, 200) if isinstance(value, str) else value for name, value in row.items()}
         for row in found.rows],
        hide_index=True, height="content", alt="What each data set was recognized as",
        column_config={"Task": st.column_config.TextColumn(pinned=True, width=120)},
    )  # fmt: skip
    for caution in found.cautions:
        st.caption(f":material/warning: {text.safe_text(caution, 400)}")
    heads = f"; heads are built from {plural(found.prompts, 'prompt')}" if found.prompts else ""
    images, size = plural(found.images, "image"), size_text(found.nbytes)
    st.markdown(
        f":material/timer: Up to **{images}** are read and kept, **{size}** on the disk with the models{heads}."
    )


@st.cache_data(max_entries=data.KEPT, ttl=FRESH, show_spinner="Looking at the data sets …")
def _summary(described: str, states: tuple[tuple[int, ...], ...], out: Path) -> Summary:
    from merging.benchmarks.build.description import Description
    from merging.benchmarks.build.plan import check_room, plan
    from merging.files.plain_yaml import plain_yaml

    found = plan(Description.of(plain_yaml(described), Path.cwd()), tower=False)
    check_room(found, out)
    rows, cautions = [], list(found.models.cautions)
    if not found.models.trained:
        cautions.append("No data set has its expert, so every merge is out of domain everywhere on this benchmark.")
    for task in found.tasks:
        rows.append(
            {
                "Task": task.source.key,
                "For merges": "in domain" if task.source.expert else "out of domain",
                "Classes": len(task.classes.names),
                "Called": first_few(task.classes.names, 4),
                "Names are": task.classes.how,
                "Head": "released" if task.head is not None else f"built, {plural(len(task.templates), 'prompt')}",
                "Split": task.split.rule,
            }
        )
        cautions += [f"{task.source.key}: {line}" for line in task.data.notes]
        cautions += [f"{task.source.key}: {line}" for line in task.split.cautions if task.source.expert]
    return Summary(rows, found.images, found.prompts, found.nbytes, cautions)


def keep(path: Path, plain: Mapping[str, Any]) -> None:
    """Write a description where the job reads it."""
    from merging.files.plain_yaml import write_yaml

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(write_yaml(dict(plain)), "utf-8")

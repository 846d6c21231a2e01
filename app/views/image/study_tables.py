"""The Image page's requests to the preview process, and their tables, cached by model, image and table."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text, permissions
from app.reading import page_data, previews
from app.session import view_state
from merging.base import modes
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction
from merging.study.previews.preview_process import ImageRequest, TableName

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from merging.study.one_image.named_towers import RecentlyUsed
    from merging.study.runs.run import Run

DRAFT, ERROR = "draft", "error"  # the key of a draft's model, and the column of a table that cannot be computed
CACHED = 200  # tables
REQUEST_KEY = "image"  # the key of this page's requests in the session
SLOW = ("accuracy", "drift_scaled", "first_past", "neighbors", "overlap")  # tables that read a whole data set
_OWN = "_image_own_tables"


@dataclass(frozen=True)
class ShownImage:
    """The image on the page: TASK:SPLIT:N, or "own:…" with its ``pixels`` as base64; ``head`` names the classes' task.

    ``truth`` is the name of its class; empty if it has no label.
    """

    name: str
    head: str
    picture: str  # a PNG as a data URI
    gray: str  # the same in gray, so that its colors do not mix with those of the cells over it
    truth: str = ""
    pixels: str = ""


@dataclass(frozen=True)
class ShownModel:
    """A model on the page with the key of its reference, which is its own key unless it is a run or the draft."""

    key: str
    title: str
    reference: str


@dataclass(frozen=True)
class ImageStudy:
    """An image in several models. ``draft`` is the recipe of the model with the key "draft", as YAML."""

    image: ShownImage
    models: tuple[ShownModel, ...]
    runs: tuple[Run, ...]
    draft: str = ""

    @property
    def subjects(self) -> list[ShownModel]:
        """The models that have another one as their reference."""
        return [model for model in self.models if model.reference != model.key]

    def title(self, key: str) -> str:
        """The title of a model; untrusted plain text."""
        return next((model.title for model in self.models if model.key == key), key)

    def pair_tables(self, table: str) -> list[TableName]:
        """The names of a table for every subject and its reference."""
        return [TableName(table, model.key, model.reference) for model in self.subjects]

    def model_tables(self, table: str, other: str = "") -> list[TableName]:
        """The names of a table for every model."""
        return [TableName(table, model.key, other) for model in self.models]


@st.cache_resource(show_spinner=False)
def _cached_tables() -> RecentlyUsed[pd.DataFrame]:
    from merging.study.one_image.named_towers import RecentlyUsed

    return RecentlyUsed(CACHED)


def _table_cache(study: ImageStudy) -> RecentlyUsed[pd.DataFrame]:
    """The cache of tables: shared by all sessions, or this session's own for the user's own picture."""
    from merging.study.one_image.named_towers import RecentlyUsed

    if not study.image.pixels:
        return _cached_tables()
    own: RecentlyUsed[pd.DataFrame] = st.session_state.setdefault(_OWN, RecentlyUsed(CACHED))
    return own


@dataclass
class StudyTables:
    """The computed tables of a study, and the reasons why others cannot be computed."""

    study: ImageStudy
    known: dict[TableName, pd.DataFrame] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # sentence -> title of the model

    def find(self, name: TableName) -> pd.DataFrame | None:
        """One table; None if it is not computed yet, or cannot be."""
        return self.known.get(name)

    def join_tables(self, names: Iterable[TableName]) -> pd.DataFrame | None:
        """Tables of several models as one, with the models' titles on the page; None without any."""
        import pandas as pd

        frames = []
        for name in names:
            if (table := self.find(name)) is not None and len(table):
                against = {"against": self.study.title(name.other)} if name.other else {}
                frames.append(table.assign(model=name.model, title=self.study.title(name.model), **against))
        return pd.concat(frames, ignore_index=True) if frames else None

    def sentences(self) -> dict[str, str]:
        """{key: sentence} about the image for each subject; untrusted plain text."""
        by_model = {}
        for model in self.study.subjects or self.study.models[:1]:
            for table in ("sentence", "says"):
                found = self.find(TableName(table, model.key, model.reference))
                if found is not None:
                    by_model[model.key] = page_text.data_set_title(str(found["sentence"].iloc[0]))
                    break
        return by_model

    @property
    def sentences_in_words(self) -> str:
        """All sentences together, for the charts' alternative texts."""
        return " ".join(self.sentences().values())


def order_tables(names: Sequence[TableName]) -> list[TableName]:
    """Each table once; those that read a whole data set come last."""
    return sorted(dict.fromkeys(names), key=lambda name: name.table in SLOW)


def tables_request(study: ImageStudy, names: Sequence[TableName]) -> ImageRequest:
    """The request for these tables."""
    own = bool(study.image.pixels)
    return ImageRequest(
        image="" if own else study.image.name, tables=tuple(names), benchmark=str(page_data.job_queue().folder),
        store=str(page_data.store().root.absolute()), head=study.image.head, pixels=study.image.pixels,
        draft=study.draft,
        base=str(Path.cwd()),
    )  # fmt: skip


def read_tables(study: ImageStudy, names: Sequence[TableName]) -> tuple[StudyTables, bool, str]:
    """The tables so far, whether more are being computed, and an error; missing tables are requested."""
    cache, request = _table_cache(study), tables_request(study, names)
    tables = StudyTables(study)
    answer = previews.preview_state(request, REQUEST_KEY)
    is_incomplete = any(_key(study, name) not in cache for name in names)
    if is_incomplete and not permissions.is_allowed(VisitorAction.PREVIEW):
        return tables, False, modes.refusal(VisitorAction.PREVIEW)
    if answer is None and is_incomplete:
        previews.request_preview(request, REQUEST_KEY)
        answer = previews.preview_state(request, REQUEST_KEY)
    new = dict(answer.tables) if answer is not None else {}
    for name in names:
        if name in new and ERROR in new[name]:
            tables.problems.setdefault(str(new[name][ERROR].iloc[0]), study.title(name.model))
        elif name in new:
            tables.known[name] = cache.get(_key(study, name), lambda name=name: new[name])  # type: ignore[misc]
        elif (key := _key(study, name)) in cache:
            tables.known[name] = cache.get(key, _dropped_table)
    running = answer is not None and not answer.done
    return tables, running, answer.error if answer is not None else ""


def _dropped_table() -> pd.DataFrame:
    """An empty table, in place of one that another session has just evicted from the cache."""
    import pandas as pd

    return pd.DataFrame()


def _key(study: ImageStudy, name: TableName) -> tuple[object, ...]:
    draft = study.draft if DRAFT in (name.model, name.other) else ""
    return page_data.current_digest(), study.image.name, study.image.head, draft, *name


def draft_recipe() -> tuple[str, str]:
    """The recipe being built on Merge as YAML, and its title; empty if there is none that can be merged."""
    draft = view_state.draft()
    if draft is None:
        return "", ""
    try:
        models = next(own for own in page_data.model_sets().values() if own.pretrained == draft.pretrained)
        recipe = draft.recipe(dict(models.experts))
    except (MergingError, KeyError, StopIteration):
        return "", ""
    title = f"Draft: {recipe.title or page_text.chain_title(recipe)}"
    return replace(recipe, title=title).to_yaml(), title


def block_and_head_counts() -> tuple[int, int]:
    """The numbers of blocks and heads of the benchmark's towers; (0, 0) if unknown."""
    return _depths(page_data.current_digest())


@st.cache_data(max_entries=16, show_spinner=False)
def _depths(digest: str) -> tuple[int, int]:
    from merging.models.architecture import Architecture

    try:
        own = Architecture.from_checkpoint(page_data.benchmark().open_pretrained())
    except MergingError:
        return 0, 0
    return own.layers, own.heads


def data_uri(pixels: np.ndarray[Any, Any], mode: str = "RGB") -> str:
    """An image (height, width, 3) uint8 as a PNG in a data URI; in gray with the mode "L"."""
    import io

    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def file_stem(study: ImageStudy) -> str:
    """The beginning of the file names of this study's charts."""
    digits = hashlib.sha256(",".join(model.key for model in study.models).encode()).hexdigest()[:6]
    return f"{study.image.name.replace(':', '_')}_{digits}"


def study_in_words(study: ImageStudy, tables: StudyTables) -> str:
    """The report's description of a chart: the image and the sentences about it; Markdown."""
    truth = f", of the class {page_text.safe_text(study.image.truth, 60)}" if study.image.truth else ""
    name = "Your own picture" if study.image.pixels else f"Image {page_text.safe_text(study.image.name, 80)}{truth}"
    by_model = " ".join(page_text.safe_text(words, 600) for words in tables.sentences().values())
    return f"{name}; computed on this machine, without random numbers. {by_model}".strip()

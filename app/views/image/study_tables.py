"""The Image page's requests to the preview process, and their tables, cached by model, image and table.

The preview process computes tables for pages in the background. A study is one image in several models.
"""

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

DRAFT = "draft"  # the key of the draft's model
ERROR_COLUMN = "error"  # the column of a table that states why a table cannot be computed
MAX_CACHED_TABLES = 200
REQUEST_KEY = "image"  # the key of this page's requests in the session
# Tables that read a whole data set. ``first_unusual_depths`` has the first depths at which the drift of patches exceeds
# the 90% quantile of the data set.
SLOW_TABLES = ("accuracy", "drift_scaled", "first_unusual_depths", "neighbors", "overlap")
_OWN_CACHE_KEY = "_image_own_tables"


@dataclass(frozen=True)
class ShownImage:
    """The image on the page.

    ``name`` is TASK:SPLIT:N, or "own:…" for an uploaded picture, whose ``pixels`` are base64. ``head`` is the task
    whose classes the models choose among. ``true_class`` is the name of the image's class; empty without a label.
    """

    name: str
    head: str
    picture: str  # a PNG as a data URI
    gray: str  # the same picture in gray, so that its colors do not mix with those of the cells over it
    true_class: str = ""
    pixels: str = ""


@dataclass(frozen=True)
class ShownModel:
    """A model on the page; models other than runs and the draft are their own ``reference``."""

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
        """The names of a table for every model.

        ``other`` is the second model; for attention it is a block's number, or an attention map such as "head 0" or
        "rollout".
        """
        return [TableName(table, model.key, other) for model in self.models]


@st.cache_resource(show_spinner=False)
def _open_shared_cache() -> RecentlyUsed[pd.DataFrame]:
    from merging.study.one_image.named_towers import RecentlyUsed

    return RecentlyUsed(MAX_CACHED_TABLES)


def _open_cache(study: ImageStudy) -> RecentlyUsed[pd.DataFrame]:
    """The cache of tables: that of all sessions, or this session's cache if the image is an uploaded picture."""
    from merging.study.one_image.named_towers import RecentlyUsed

    if not study.image.pixels:
        return _open_shared_cache()
    session_cache: RecentlyUsed[pd.DataFrame] = st.session_state.setdefault(
        _OWN_CACHE_KEY, RecentlyUsed(MAX_CACHED_TABLES)
    )
    return session_cache


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
            for table in ("full_summary", "quick_summary"):  # the quick one has no part on restored tokens
                found = self.find(TableName(table, model.key, model.reference))
                if found is not None:
                    by_model[model.key] = page_text.correct_titles(str(found["sentence"].iloc[0]))
                    break
        return by_model

    @property
    def sentences_in_words(self) -> str:
        """All sentences together, for the charts' alternative texts."""
        return " ".join(self.sentences().values())


def order_slow_last(names: Sequence[TableName]) -> list[TableName]:
    """Each table once; those that read a whole data set come last."""
    return sorted(dict.fromkeys(names), key=lambda name: name.table in SLOW_TABLES)


def make_request(study: ImageStudy, names: Sequence[TableName]) -> ImageRequest:
    """The request for these tables; relative paths of the draft's checkpoints begin at the working directory."""
    is_uploaded = bool(study.image.pixels)
    return ImageRequest(
        image="" if is_uploaded else study.image.name, tables=tuple(names), benchmark=str(page_data.job_queue().folder),
        store=str(page_data.store().root.absolute()), head=study.image.head, pixels=study.image.pixels,
        draft=study.draft,
        base=str(Path.cwd()),
    )  # fmt: skip


def read_tables(study: ImageStudy, names: Sequence[TableName]) -> tuple[StudyTables, bool, str]:
    """The tables so far, whether more are being computed, and an error; missing tables are requested."""
    cache, request = _open_cache(study), make_request(study, names)
    tables = StudyTables(study)
    preview = previews.preview_state(request, REQUEST_KEY)
    is_incomplete = any(_cache_key(study, name) not in cache for name in names)
    if is_incomplete and not permissions.is_allowed(VisitorAction.PREVIEW):
        return tables, False, modes.explain_refusal(VisitorAction.PREVIEW)
    if preview is None and is_incomplete:
        previews.request_preview(request, REQUEST_KEY)
        preview = previews.preview_state(request, REQUEST_KEY)
    new_tables = dict(preview.tables) if preview is not None else {}
    for name in names:
        if name in new_tables and ERROR_COLUMN in new_tables[name]:
            tables.problems.setdefault(str(new_tables[name][ERROR_COLUMN].iloc[0]), study.title(name.model))
        elif name in new_tables:
            tables.known[name] = cache.get(_cache_key(study, name), lambda name=name: new_tables[name])  # type: ignore[misc]
        elif (key := _cache_key(study, name)) in cache:
            tables.known[name] = cache.get(key, _make_empty_table)
    running = preview is not None and not preview.done
    return tables, running, preview.error if preview is not None else ""


def _make_empty_table() -> pd.DataFrame:
    """An empty table, for a table that another session has just evicted from the cache."""
    import pandas as pd

    return pd.DataFrame()


def _cache_key(study: ImageStudy, name: TableName) -> tuple[object, ...]:
    draft = study.draft if DRAFT in (name.model, name.other) else ""
    return page_data.current_digest(), study.image.name, study.image.head, draft, *name


def read_draft_recipe() -> tuple[str, str]:
    """The recipe being built on Merge as YAML, and its title; two empty texts if it is missing or incomplete."""
    draft = view_state.draft()
    if draft is None:
        return "", ""
    try:
        model_set = next(
            model_set_candidate
            for model_set_candidate in page_data.model_sets().values()
            if model_set_candidate.pretrained == draft.pretrained
        )
        recipe = draft.recipe(dict(model_set.experts))
    except (MergingError, KeyError, StopIteration):
        return "", ""
    title = f"Draft: {recipe.title or page_text.chain_title(recipe)}"
    return replace(recipe, title=title).to_yaml(), title


def read_block_and_head_counts() -> tuple[int, int]:
    """The numbers of blocks and heads of the benchmark's towers; (0, 0) if unknown."""
    return _read_counts(page_data.current_digest())


@st.cache_data(max_entries=16, show_spinner=False)
def _read_counts(digest: str) -> tuple[int, int]:
    from merging.models.architecture import Architecture

    try:
        architecture = Architecture.from_checkpoint(page_data.benchmark().open_pretrained())
    except MergingError:
        return 0, 0
    return architecture.layers, architecture.heads


def make_data_uri(pixels: np.ndarray[Any, Any], mode: str = "RGB") -> str:
    """An image (height, width, 3) uint8 as a PNG in a data URI; ``mode`` is "RGB", or "L" for gray."""
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def make_file_stem(study: ImageStudy) -> str:
    """The beginning of the file names of this study's charts."""
    digits = hashlib.sha256(",".join(model.key for model in study.models).encode()).hexdigest()[:6]
    return f"{study.image.name.replace(':', '_')}_{digits}"


def study_in_words(study: ImageStudy, tables: StudyTables) -> str:
    """The report's description of a chart: the image and the sentences about it; Markdown."""
    true_class = f", of the class {page_text.safe_text(study.image.true_class, 60)}" if study.image.true_class else ""
    name = (
        "Your own picture" if study.image.pixels else f"Image {page_text.safe_text(study.image.name, 80)}{true_class}"
    )
    sentences = " ".join(page_text.safe_text(sentence, 600) for sentence in tables.sentences().values())
    return f"{name}; computed on this machine, without random numbers. {sentences}".strip()

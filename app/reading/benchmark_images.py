"""The benchmark's images as pages show them.

Stored images are read once for all sessions; images in the files of a data set are decoded one by one when they are
shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from app.reading import page_data

if TYPE_CHECKING:
    import numpy as np

    from merging.images.benchmarks.referenced_images import Images


def split_images(task: str, split: str) -> Images:
    """The images (n, h, w, 3) of a split; an index selects one image.

    Raises:
        TaskError: an image cannot be read, for instance because its file was moved.
    """
    page_data.benchmark().check_images([task])
    return _read_images(page_data.current_digest(), task, split)


def split_labels(task: str, split: str) -> np.ndarray[Any, Any]:
    """The labels (n,) of a split. Raises TaskError if they cannot be read."""
    return _read_labels(page_data.current_digest(), task, split)


def clear_images() -> None:
    """Forget all images and labels, because their files were moved."""
    _read_images.clear()


@st.cache_resource(max_entries=8, show_spinner=False)
def _read_images(digest: str, task: str, split: str) -> Images:
    import numpy as np

    pictures = page_data.benchmark().load_unlabeled(task, split)
    if isinstance(pictures, np.ndarray):
        pictures.flags.writeable = False  # sessions share it
    return pictures


@st.cache_resource(max_entries=32, show_spinner=False)
def _read_labels(digest: str, task: str, split: str) -> np.ndarray[Any, Any]:
    classes = page_data.benchmark().load_labels(task, split)
    classes.flags.writeable = False  # sessions share it
    return classes

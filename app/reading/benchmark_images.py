"""The benchmark's images as pages show them.

Stored images are read once for all sessions; those that stay in the files of a data set are decoded one by one, where
they are shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from app.reading import page_data

if TYPE_CHECKING:
    import numpy as np

    from merging.images.benchmarks.referenced_images import Images


def split_images(task: str, split: str) -> Images:
    """The images (n, h, w, 3) of a split, an index of which is one image. Raises TaskError as the benchmark does.

    Files that the benchmark refers to may have been moved since they were last read.
    """
    page_data.benchmark().check_images([task])
    return _images(page_data.current_digest(), task, split)


def split_labels(task: str, split: str) -> np.ndarray[Any, Any]:
    """The labels (n,) of a split. Raises TaskError as the benchmark does."""
    return _labels(page_data.current_digest(), task, split)


def clear_images() -> None:
    """Read images anew, since their files lie elsewhere."""
    _images.clear()


@st.cache_resource(max_entries=8, show_spinner=False)
def _images(digest: str, task: str, split: str) -> Images:
    import numpy as np

    pictures = page_data.benchmark().unlabeled(task, split)
    if isinstance(pictures, np.ndarray):
        pictures.flags.writeable = False  # sessions share it
    return pictures


@st.cache_resource(max_entries=32, show_spinner=False)
def _labels(digest: str, task: str, split: str) -> np.ndarray[Any, Any]:
    classes = page_data.benchmark().labels(task, split)
    classes.flags.writeable = False  # sessions share it
    return classes

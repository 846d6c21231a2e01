"""A picture of the user's own on the Image page: read under limits, prepared as data sets' images, never stored."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text, permissions
from app.reading import page_data as reading
from app.session import address, view_state
from app.views.image import study_tables
from app.views.image.study_tables import ShownImage
from merging.base.errors import TaskError
from merging.base.modes import VisitorAction

if TYPE_CHECKING:
    import numpy as np

_KEPT, _COUNT = "_image_own", "_image_own_uploads"
COPY_SIZE = 320  # px of the longer side of the original as the page shows it
MOST_MEGABYTES = 2  # MB of the uploaded file
ABOUT = (
    "One PNG, JPEG or WebP of at most 2 MB. It is cut and scaled as the data sets' images are, and stays in this "
    "session: nothing of it is stored, and only its pixels are kept."
)
NEEDS_OWN_MACHINE = "Your own pictures are read only where one person works: run the app on your machine for that."


@dataclass(frozen=True)
class UploadedPicture:
    """A picture: its pixels at the tower's resolution (s, s, 3), and a small copy of the original."""

    name: str
    pixels: np.ndarray[Any, Any]
    original: np.ndarray[Any, Any]


def current_picture() -> UploadedPicture | None:
    """The picture of this session, if one is shown that was read for this benchmark's towers."""
    picture = st.session_state.get(_KEPT)
    fits = isinstance(picture, UploadedPicture) and len(picture.pixels) == reading.benchmark().image_size
    return picture if fits else None


def shown_picture(picture: UploadedPicture) -> ShownImage:
    """The picture as the page shows it; nothing says what it is of."""
    tasks = [task.key for task in reading.benchmark().tasks]
    head = view_state.picked_value(address.LABEL_SET, tasks, tasks[0])
    pixels = base64.b64encode(picture.pixels.tobytes()).decode()
    return ShownImage(
        picture.name,
        head,
        study_tables.data_uri(picture.pixels),
        study_tables.data_uri(picture.pixels, "L"),
        pixels=pixels,
    )


def forget_picture() -> None:
    """Callback: forget the picture."""
    st.session_state.pop(_KEPT, None)


def draw_upload() -> None:
    """The place to give a picture; a new one each time, so that a picture is read once."""
    if not permissions.is_allowed(VisitorAction.UPLOAD):
        st.caption(NEEDS_OWN_MACHINE)
        return
    st.caption(ABOUT)
    key = f"image_upload_{st.session_state.get(_COUNT, 0)}"
    file = st.file_uploader("Your own picture", key=key, max_upload_size=MOST_MEGABYTES, width=420)
    if file is None:
        return
    try:
        st.session_state[_KEPT] = read_picture(file.getvalue(), file.name)
    except TaskError as error:
        st.error(page_text.safe_text(error, 400), icon=":material/block:")
        return
    st.session_state[_COUNT] = st.session_state.get(_COUNT, 0) + 1
    st.rerun()


def read_picture(content: bytes, file_name: str) -> UploadedPicture:
    """A picture from the bytes of a file. Raises TaskError as ``own_image``."""
    import hashlib

    import numpy as np

    from merging.images.own_image import own_image
    from merging.images.preprocess import read_image
    from merging.study.one_image.studied_image import DIGITS, OWN

    pixels = own_image(content, file_name, reading.benchmark().image_size)
    original = read_image(content, file_name).convert("RGB")
    original.thumbnail((COPY_SIZE, COPY_SIZE))
    name = f"{OWN}:{hashlib.sha256(pixels.tobytes()).hexdigest()[:DIGITS]}"
    return UploadedPicture(name, pixels, np.asarray(original))

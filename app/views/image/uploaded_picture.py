"""The user's own picture on the Image page: limited in size, prepared like the data sets' images, never stored."""

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

_PICTURE_KEY, _UPLOAD_COUNT_KEY = "_image_own", "_image_own_uploads"
COPY_SIZE = 320  # px of the longer side of the original as the page shows it
MAX_MEGABYTES = 2  # MB of the uploaded file
UPLOAD_NOTE = (
    "One PNG, JPEG or WebP of at most 2 MB. It is cropped and scaled like the data sets' images. Only its pixels stay "
    "in the memory of this session; nothing is written to the disk."
)
NO_UPLOADS = "This shared server reads no pictures of your own. Run the app on your machine for that."


@dataclass(frozen=True)
class UploadedPicture:
    """A picture: ``pixels`` (side, side, 3) as the towers see it and a small ``original`` (height, width, 3), uint8."""

    name: str
    pixels: np.ndarray[Any, Any]
    original: np.ndarray[Any, Any]


def find_picture() -> UploadedPicture | None:
    """The picture of this session, if it has one of the resolution of this benchmark's towers."""
    picture = st.session_state.get(_PICTURE_KEY)
    has_right_size = isinstance(picture, UploadedPicture) and len(picture.pixels) == reading.benchmark().image_size
    return picture if has_right_size else None


def make_shown_image(picture: UploadedPicture) -> ShownImage:
    """The picture as the page shows it, without a label."""
    tasks = [task.key for task in reading.benchmark().tasks]
    head = view_state.resolve_value(address.LABEL_SET, tasks, tasks[0])
    pixels = base64.b64encode(picture.pixels.tobytes()).decode()
    return ShownImage(
        picture.name,
        head,
        study_tables.make_data_uri(picture.pixels),
        study_tables.make_data_uri(picture.pixels, "L"),
        pixels=pixels,
    )


def forget_picture() -> None:
    """Callback: drop the picture from the session."""
    st.session_state.pop(_PICTURE_KEY, None)


def draw_upload() -> None:
    """Draw the upload field for a picture; each upload resets the field, so that a picture is read only once."""
    if not permissions.is_allowed(VisitorAction.UPLOAD):
        st.caption(NO_UPLOADS)
        return
    st.caption(UPLOAD_NOTE)
    key = f"image_upload_{st.session_state.get(_UPLOAD_COUNT_KEY, 0)}"
    file = st.file_uploader("Your own picture", key=key, max_upload_size=MAX_MEGABYTES, width=420)
    if file is None:
        return
    try:
        st.session_state[_PICTURE_KEY] = read_picture(file.getvalue(), file.name)
    except TaskError as error:
        st.error(page_text.safe_text(error, 400), icon=":material/block:")
        return
    st.session_state[_UPLOAD_COUNT_KEY] = st.session_state.get(_UPLOAD_COUNT_KEY, 0) + 1
    st.rerun()


def read_picture(content: bytes, file_name: str) -> UploadedPicture:
    """A picture from the bytes of a file. Raises TaskError like ``read_own_image``."""
    import hashlib

    import numpy as np

    from merging.images.own_image import read_own_image
    from merging.images.preprocess import read_image
    from merging.study.one_image.studied_image import DIGITS, OWN_PREFIX

    pixels = read_own_image(content, file_name, reading.benchmark().image_size)
    original = read_image(content, file_name).convert("RGB")
    original.thumbnail((COPY_SIZE, COPY_SIZE))
    name = f"{OWN_PREFIX}:{hashlib.sha256(pixels.tobytes()).hexdigest()[:DIGITS]}"
    return UploadedPicture(name, pixels, np.asarray(original))

"""A picture of the user's own on the Image page: read under limits, prepared as data sets' images, never stored."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import permission, text
from app.reading import data as reading
from app.session import address, state
from app.views.image import data
from app.views.image.data import Shown
from merging.base.errors import TaskError
from merging.base.modes import Act

if TYPE_CHECKING:
    import numpy as np

_KEPT, _COUNT = "_image_own", "_image_own_uploads"
BESIDE = 320  # px of the longer side of the original as the page shows it
LIMIT = 2  # MB of the uploaded file
ABOUT = (
    "One PNG, JPEG or WebP of at most 2 MB. It is cut and scaled as the data sets' images are, and stays in this "
    "session: nothing of it is stored, and only its pixels are kept."
)
SHARED = "Your own pictures are read only where one person works: run the app on your machine for that."


@dataclass(frozen=True)
class Own:
    """A picture: its pixels at the tower's resolution (s, s, 3), and a small copy of the original."""

    name: str
    pixels: np.ndarray[Any, Any]
    original: np.ndarray[Any, Any]


def kept() -> Own | None:
    """The picture of this session, if one is shown that was read for this benchmark's towers."""
    picture = st.session_state.get(_KEPT)
    fits = isinstance(picture, Own) and len(picture.pixels) == reading.benchmark().image_size
    return picture if fits else None


def shown(picture: Own) -> Shown:
    """The picture as the page shows it; nothing says what it is of."""
    tasks = [task.key for task in reading.benchmark().tasks]
    head = state.picked(address.LABEL_SET, tasks, tasks[0])
    pixels = base64.b64encode(picture.pixels.tobytes()).decode()
    return Shown(picture.name, head, data.data_uri(picture.pixels), data.data_uri(picture.pixels, "L"), pixels=pixels)


def leave() -> None:
    """Callback: forget the picture."""
    st.session_state.pop(_KEPT, None)


def upload() -> None:
    """The place to give a picture; a new one each time, so that a picture is read once."""
    if not permission.allows(Act.UPLOAD):
        st.caption(SHARED)
        return
    st.caption(ABOUT)
    key = f"image_upload_{st.session_state.get(_COUNT, 0)}"
    file = st.file_uploader("Your own picture", key=key, max_upload_size=LIMIT, width=420)
    if file is None:
        return
    try:
        st.session_state[_KEPT] = read(file.getvalue(), file.name)
    except TaskError as error:
        st.error(text.safe_text(error, 400), icon=":material/block:")
        return
    st.session_state[_COUNT] = st.session_state.get(_COUNT, 0) + 1
    st.rerun()


def read(content: bytes, file_name: str) -> Own:
    """A picture from the bytes of a file. Raises TaskError as ``own_image``."""
    import hashlib

    import numpy as np

    from merging.images.own_image import own_image
    from merging.images.preprocess import read_image
    from merging.study.one_image.studied import DIGITS, OWN

    pixels = own_image(content, file_name, reading.benchmark().image_size)
    original = read_image(content, file_name).convert("RGB")
    original.thumbnail((BESIDE, BESIDE))
    name = f"{OWN}:{hashlib.sha256(pixels.tobytes()).hexdigest()[:DIGITS]}"
    return Own(name, pixels, np.asarray(original))

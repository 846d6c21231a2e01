"""The pickers of the Image page's image: by data set, class and number, the next one, or a random one."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from app import page_text
from app.reading import benchmark_images, expert_names, samples
from app.reading import page_data as reading
from app.session import address, selection, view_state
from app.views.image import study_tables, uploaded_picture
from app.views.image.study_tables import ShownImage
from merging.base.errors import TaskError
from viz.figure_text import clean_text, count

ALL_CLASSES = "all classes"
SPLIT = reading.SCORED_SPLIT
SEED_KEY, _TASK_KEY = "image_seed", "_image_task"


def find_picked_image() -> ShownImage:
    """The image that the link or the session names, else the first of the benchmark.

    Raises:
        TaskError: the benchmark has no images.
    """
    if (picture := uploaded_picture.find_picture()) is not None:
        return uploaded_picture.make_shown_image(picture)
    selection.note_shown(selection.IMAGE)
    name = selection.chosen_value(selection.IMAGE)
    try:
        return read_image(name) if name else _read_first_image()
    except TaskError as error:
        first_image = _read_first_image()
        st.warning(page_text.safe_text(error, 300), icon=":material/link_off:")
        return first_image


def _read_first_image() -> ShownImage:
    task = reading.benchmark().tasks[0]
    return read_image(f"{task.key}:{SPLIT}:0")


def read_image(name: str) -> ShownImage:
    """An image of a data set. Raises TaskError if there is none of that name."""
    from merging.study.one_image.studied_image import parse_image_name

    task, split, number = parse_image_name(name)
    images, labels = benchmark_images.split_images(task, split), benchmark_images.split_labels(task, split)
    if number >= len(labels):
        raise TaskError(f"{task} has {len(labels)} images in the split {split!r}, numbered from 0; got {number}.")
    benchmark = reading.benchmark()
    tasks = {known.key: clean_text(expert_names.expert_name(known.key), 40) for known in benchmark.tasks}
    if st.session_state.get(_TASK_KEY) != task:  # an image of another data set is classified into that set's classes
        st.session_state[_TASK_KEY] = task
        view_state.pick_value(address.LABEL_SET, task)
    head = view_state.resolve_value(address.LABEL_SET, list(tasks), task)
    true_class, pixels = benchmark.find_task(task).class_names[int(labels[number])], images[number]
    return ShownImage(
        f"{task}:{split}:{number}",
        head,
        study_tables.make_data_uri(pixels),
        study_tables.make_data_uri(pixels, "L"),
        true_class,
    )


def draw_picker(image: ShownImage) -> None:
    """Draw pickers of data set, class and number, and buttons for the next and a random image."""
    task, _, remainder = image.name.partition(":")
    split, _, number = remainder.partition(":")
    tasks = [known.key for known in reading.benchmark().tasks]
    _set_widget_value("image_set", task)
    st.selectbox(
        "Data set", tasks, format_func=lambda key: clean_text(expert_names.expert_name(key), 40), key="image_set",
        on_change=_show_first_of_data_set, width=180,
    )  # fmt: skip
    labels = benchmark_images.split_labels(task, split)
    classes = [ALL_CLASSES, *reading.benchmark().find_task(task).class_names]
    if st.session_state.get("image_class") not in classes:
        st.session_state["image_class"] = ALL_CLASSES
    chosen_class = st.selectbox(
        "Class", classes, format_func=lambda name: clean_text(name, 40), key="image_class", width=160
    )
    numbers = _find_numbers(labels, chosen_class, task)
    _set_widget_value("image_number", int(number))
    st.number_input("Image", 0, len(labels) - 1, key="image_number", on_change=_show_typed_number, width=132)
    st.button(
        "Next", icon=":material/skip_next:", on_click=_show_image, args=(task, split, _find_next_number(numbers,
        int(number))),
        shortcut="n", help="The next image of the class.",
    )  # fmt: skip
    st.button(
        "At random", icon=":material/casino:", on_click=_show_random, args=(task, split, numbers.tolist()),
        help="Sampled with the seed beside it, which then increases by one.",
    )  # fmt: skip
    st.number_input("Seed", 0, 10**6, key=SEED_KEY, width=90)


def draw_name(image: ShownImage) -> None:
    """Draw the image's name and the number of images in its half of the test set, or of training images."""
    task, split, _ = image.name.split(":")
    number = count(len(benchmark_images.split_labels(task, split)))
    half = (
        f"{number} training images" if split == "exemplars" else f"{number} images of the {samples.scored_part(split)}"
    )
    st.caption(f"{page_text.safe_text(image.name, 80)}: one of {half}, numbered from 0.")


def _set_widget_value(key: str, shown_value: Any) -> None:
    """Set a widget to the value that the page shows."""
    st.session_state[key] = shown_value


def _find_numbers(labels: np.ndarray[Any, Any], class_name: str, task: str) -> np.ndarray[Any, Any]:
    """The numbers of the images of a class, (images of the class,), of ``labels`` (images,)."""
    if class_name == ALL_CLASSES:
        return np.arange(len(labels))
    return np.flatnonzero(labels == reading.benchmark().find_task(task).class_names.index(class_name))


def _find_next_number(numbers: np.ndarray[Any, Any], number: int) -> int:
    """The next of the numbers (images of the class,), or the first one after the last."""
    following = numbers[numbers > number]
    return int(following[0]) if len(following) else int(numbers[0]) if len(numbers) else number


def _show_image(task: str, split: str, number: int) -> None:
    selection.choose_value(selection.IMAGE, f"{task}:{split}:{number}")


def _show_first_of_data_set() -> None:
    _show_image(st.session_state["image_set"], SPLIT, 0)


def _show_typed_number() -> None:
    task, split, _ = (selection.chosen_value(selection.IMAGE) or f"{st.session_state['image_set']}:{SPLIT}:0").split(
        ":"
    )
    _show_image(task, split, int(st.session_state["image_number"]))


def _show_random(task: str, split: str, numbers: list[int]) -> None:
    """Callback: show a random image, sampled with the seed on the page; then increase the seed by one."""
    seed = int(st.session_state[SEED_KEY])
    if numbers:
        _show_image(task, split, int(np.random.default_rng(seed).choice(numbers)))
    st.session_state[SEED_KEY] = min(seed + 1, 10**6)

"""The text of a card on modules: what was learned, its size, and how to load it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from merging.base.text import code_block, escape_markdown, markdown_table, printable, size_text
from merging.base.version import __version__
from merging.engine.modules.writing_modules import Parts
from merging.methods.method import Adapt
from merging.methods.params import Params

WITHOUT_TASK = "Each image is routed by itself: its task need not be known."
WITH_TASK = "The caller names the task of each image; without a task the features are the merged model's own."


def write_card(method: Adapt, params: Params, tasks: Sequence[str], parts: Parts) -> str:
    """The whole card of a folder with a merged model and its modules."""
    return (
        "\n\n".join(
            [
                f"# A merged model with {escape_markdown(method.title)}",
                *list_card_paragraphs(method, params, tasks, parts),
            ]
        )
        + "\n"
    )


def list_card_paragraphs(
    method: Adapt, params: Params, tasks: Sequence[str], parts: Parts, learned_from: str = ""
) -> Iterator[str]:
    """The paragraphs of a card: what was learned, from which images, bytes per task, and how to load it."""
    values = ", ".join(f"{name}={value}" for name, value in params.to_plain().items() if value is not None)
    names = ", ".join(escape_markdown(printable(task)) for task in tasks)
    yield (
        f"{escape_markdown(method.title)} ({escape_markdown(values)}) for the tasks {names}, by Mergescope "
        f"{__version__}. "
        f"{WITH_TASK if method.needs_task else WITHOUT_TASK} {learned_from}".rstrip()
    )
    rows = [
        (escape_markdown(printable(task)) or "all tasks", part, size_text(tensors.nbytes))
        for task, part, tensors in parts
    ]
    yield markdown_table(("Task", "Beside the model", "Size"), rows)
    yield "How to load it, with this folder as `folder`, preprocessed `images` and the name of a `task`:"
    task = "task" if method.needs_task else "None"
    lines = ("import mergescope", "modules = mergescope.load_modules(folder)", f"f = modules.features(images, {task})")
    yield code_block("\n".join(lines), "python")
    if method.plain_code:
        yield "The same in plain torch, with a task's own tensors and its head:"
        yield code_block(method.plain_code, "python")

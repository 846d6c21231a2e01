"""What a card says about modules: what was learned, how large it is, and how to load it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from merging.text import escape, fenced, printable, size_text, table
from merging.version import __version__

if TYPE_CHECKING:
    from merging.modules.modules import Modules

WITHOUT_TASK = "Each image finds its own way: nobody has to say which task it belongs to."
WITH_TASK = (
    "Somebody has to say which task an image belongs to; without a task the merged model's own features are given."
)


def card(modules: Modules, learned_from: str = "") -> str:
    """The whole card of a folder that holds a merged model and its modules."""
    title = f"# A merged model with {escape(modules.method.title)}"
    return "\n\n".join([title, *section(modules, learned_from)]) + "\n"


def section(modules: Modules, learned_from: str = "") -> Iterator[str]:
    """Its parts: what was learned, from which images, bytes per task, and how to load it."""
    method = modules.method
    shown = ", ".join(f"{name}={value}" for name, value in modules.params.plain().items() if value is not None)
    names = ", ".join(escape(printable(task)) for task in modules.tasks)
    yield (
        f"{escape(method.title)} ({escape(shown)}) for the tasks {names}, by Mergescope {__version__}. "
        f"{WITH_TASK if method.needs_task else WITHOUT_TASK} {learned_from}".rstrip()
    )
    rows = [(escape(printable(name)), size_text(size)) for name, size in modules.sizes().items()]
    yield table(("Beside the model", "Size"), rows)
    yield "How to load it, with this folder as `folder`, preprocessed `images` and the name of a `task`:"
    task = "task" if method.needs_task else "None"
    yield fenced(f"import merging\nmodules = merging.load_modules(folder)\nf = modules.features(images, {task})", "python")
    if method.plain_code:
        yield "The same in plain torch, with a task's own tensors and its head:"
        yield fenced(method.plain_code, "python")

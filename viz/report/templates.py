"""The templates of a report: the files *.html.j2 in this folder, which escape every text.

Autoescape is on in all of them. A template marks a value as safe to write it unescaped, and gives the reason. Texts
reach a template as values only, so that a text like ``{{ 7 * 7 }}`` is never computed.
"""

from __future__ import annotations

import re
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viz.figure_text import clean_text

if TYPE_CHECKING:
    import jinja2

TEMPLATE_FOLDER = Path(__file__).parent
# Characters of a name, of a heading, and of a paragraph.
NAME_CHARACTERS, LINE_CHARACTERS, PARAGRAPH_CHARACTERS = 120, 200, 5000


@cache
def environment(folder: Path = TEMPLATE_FOLDER) -> jinja2.Environment:
    """The cached environment that compiles the templates of ``folder`` and those in this folder."""
    import jinja2  # only a report needs it, and only when it is written

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, TEMPLATE_FOLDER]), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    for name, limit in {"short": NAME_CHARACTERS, "line": LINE_CHARACTERS, "long": PARAGRAPH_CHARACTERS}.items():
        environment.filters[name] = partial(clean_text, limit=limit)
    environment.filters |= {"anchor": anchor, "lines": cut_lines, "paragraphs": split_paragraphs}
    return environment


def fill_template(template: str, folder: Path = TEMPLATE_FOLDER, **values: Any) -> str:
    """The text of a template of a folder, filled with these values."""
    return environment(folder).get_template(template).render(**values)


def anchor(identity: str) -> str:
    """The id of a source's element, of letters, digits and dashes only."""
    return re.sub(r"[^0-9A-Za-z-]", "-", identity)[:64]


def cut_lines(text: str) -> str:
    """Text with every line cut to ``LINE_CHARACTERS``, and with invisible characters written as their codes."""
    return "\n".join(clean_text(line, LINE_CHARACTERS) for line in text.splitlines())


def split_paragraphs(text: str) -> list[list[str]]:
    """Free text as paragraphs of lines: an empty line begins a new paragraph, and line ends remain."""
    blocks = re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n").replace("\r", "\n").strip())
    return [block.strip("\n").replace("\t", " ").split("\n") for block in blocks if block.strip()]

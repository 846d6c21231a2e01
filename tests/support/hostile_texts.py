"""Texts that anybody may write into a name, a title or a file, and that must stay text wherever they are shown."""

from __future__ import annotations

import re

TEXTS = {
    "image": "<img src=x onerror=alert(1)>",
    "script": "</script><script>alert(1)</script>",
    "page": "</title></style><a href='javascript:alert(1)'>x</a>",
    "attribute": '"onmouseover="alert(1)" x=\'',
    "entities": "& &amp; &#60;script&#62; <!-- -->",
    "markdown": "**b** `c` ~~d~~ [e](javascript:alert(1)) ![f](http://g) # h",
    "directives": ":red[a] :material/home: :smile: $x$ \\href{y}",
    "template": "{{7*7}} {% if x %} %{customdata[0]} %(a)s {0}",
    "formula": "=cmd|' /C calc'!A0",
    "at": "@SUM(1)",
    "table": "| a | b |",
    "front matter": "x\n---\nlicense: mit\n# heading",
    "terminal": "\x1b[31mred\x1b]0;title\x07\b\r",
    "bidi": "evil\u202egnp.exe\u2066\u200b\u2028",
    "null": "a\x00b",
    "path": "../../etc/passwd",
    "windows": "..\\..\\con:nul",
    "long": "long " * 400,
}
INVISIBLE = re.compile(r"[^\n\x20-\x7e\u00a1-\uffff\U00010000-\U0010ffff]|[\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
# What a text of the table looks like where Markdown or HTML would act on it.
ACTIVE = [
    r"(?<!\\)<(img|script|a |!--)", r"(?<!\\)\*\*b", r"(?<!\\)`c", r"(?<!\\)~~d", r"(?<!\\)\]\(javascript",
    r"(?<!\\)!\[f",
    r"(?<!\\):red\[", r"(?<!\\):material/home", r"(?<!\\):smile:", r"(?<!\\)\$x", r"(?<!\\)\| a \|", r"^# heading",
    r"(?<!\\)&(amp|#60);",
]  # fmt: skip


def active(text: str) -> list[str]:
    """The parts of a Markdown text that came from the table and are not escaped, and its invisible characters."""
    parts = [match[0] for pattern in ACTIVE for match in re.finditer(pattern, text, re.MULTILINE)]
    return parts + [ascii(character) for character in INVISIBLE.findall(text)]

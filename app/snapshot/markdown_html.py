"""The Markdown of lessons as HTML: paragraphs, lists, bold, italics, code, formulas, and words of the glossary.

Every text is escaped first, so that no text can contain a tag.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from urllib.parse import unquote_plus

from markupsafe import Markup

from app.reading import glossary
from app.snapshot.formulas import mathml

# In this order: formula, code, explained word, bold, italics, escaped sign.
INLINE_PATTERN = re.compile(
    r"\$(?P<formula>[^$]+)\$|`(?P<code>[^`]+)`"
    r"|\[(?P<text>[^\]]*)\]\(methods\?word=(?P<word>[^\s)]+) \"(?P<title>[^\"]*)\"\)"
    r"|\*\*(?P<bold>.+?)\*\*|\*(?P<italic>[^*]+)\*|\\(?P<sign>.)",
    re.DOTALL,
)
ITEM_PATTERN = re.compile(r"(?:[-*]|\d+\.)\s+")


class StepMarkdown:
    """Writes texts of one step; a word of the glossary is explained where the step first uses it."""

    def __init__(self, page: str = "words.html") -> None:
        self.page, self.explained = page, set[str]()

    def html(self, markdown: str) -> Markup:
        """A text as paragraphs and lists."""
        blocks = [block for block in re.split(r"\n\s*\n", markdown.strip()) if block.strip()]
        return Markup("\n").join(self._block(block) for block in blocks)

    def line(self, markdown: str) -> Markup:
        """A text without paragraphs, for labels."""
        linked, used = glossary.link_words(markdown, self.explained)
        self.explained.update(used)
        return Markup(self._inline(linked))

    def _block(self, block: str) -> Markup:
        lines = block.strip().splitlines()
        if all(ITEM_PATTERN.match(line) for line in lines):
            kind = "ol" if lines[0][0].isdigit() else "ul"
            items = "".join(f"<li>{self.line(ITEM_PATTERN.sub('', line, count=1))}</li>" for line in lines)
            return Markup(f"<{kind}>{items}</{kind}>")
        return Markup(f"<p>{self.line(' '.join(line.strip() for line in lines))}</p>")

    def _inline(self, markdown: str) -> str:
        """HTML of a line, piece by piece; text between two marks is escaped."""
        parts, end = [], 0
        for match in INLINE_PATTERN.finditer(markdown):
            parts += [escape(markdown[end : match.start()]), self._mark(match)]
            end = match.end()
        return "".join([*parts, escape(markdown[end:])])

    def _mark(self, match: re.Match[str]) -> str:
        kind = match.lastgroup
        inside: dict[str, Callable[[str], str]] = {
            "formula": mathml,
            "code": lambda text: f"<code>{escape(text)}</code>",
            "bold": lambda text: f"<b>{self._inline(text)}</b>",
            "italic": lambda text: f"<i>{self._inline(text)}</i>",
            "sign": escape,
        }
        if kind == "title":
            anchor = word_anchor(unquote_plus(match["word"]))
            title, text = escape(match["title"]), escape(match["text"])
            return f'<a class="word" href="{self.page}#{anchor}" title="{title}">{text}</a>'
        return inside[str(kind)](match[str(kind)])


def word_anchor(word: str) -> str:
    """The id of a word's entry, of letters, digits and dashes only."""
    return "word-" + re.sub(r"[^0-9A-Za-z]+", "-", word)

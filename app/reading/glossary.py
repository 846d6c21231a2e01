"""The words of the pages, from ``app/glossary.yaml``: each with a sentence, a formula, and its forms."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from merging.base.errors import RecipeError
from merging.base.files.plain_yaml import check_fields, read_plain_yaml, read_text_field

GLOSSARY_FILE = Path(__file__).resolve().parent.parent / "glossary.yaml"
WORD_FIELDS = ("word", "also", "sentence", "formula")
FILE_NOUN = "glossary"
# Markdown that never changes: links, formulas, code, addresses, escaped characters, icons and colors, quoted names.
UNCHANGED_MARKDOWN = r"“[^”]*”|!?\[[^\]]*\]\([^)]*\)|\$[^$]*\$|`[^`]*`|https?://\S+|\\.|:[a-z]+/\w+:|:[a-z-]+(?=\[)"


@dataclass(frozen=True, slots=True)
class GlossaryWord:
    """A word with its other forms, a sentence of plain text, and a formula in LaTeX."""

    word: str
    also: tuple[str, ...]
    sentence: str
    formula: str


@cache
def words() -> tuple[GlossaryWord, ...]:
    """All words in alphabetical order. Raises RecipeError for a malformed file."""
    document = check_fields(
        read_plain_yaml(GLOSSARY_FILE.read_text("utf-8"), FILE_NOUN), FILE_NOUN, ("version", "words"), 1
    )
    entries = [check_fields(entry, FILE_NOUN, (*WORD_FIELDS, "version"), 1) for entry in document.get("words", [])]
    if missing := [field for entry in entries for field in WORD_FIELDS if field not in entry]:
        raise RecipeError(f"A word of the {FILE_NOUN} lacks {missing[0]!r}.")
    return tuple(sorted(map(_parse_word, entries), key=lambda word: word.word.lower()))


def _parse_word(entry: Mapping[str, Any]) -> GlossaryWord:
    word, sentence, formula = (
        read_text_field(entry[name], name, FILE_NOUN) for name in ("word", "sentence", "formula")
    )
    return GlossaryWord(
        word, tuple(read_text_field(form, "also", FILE_NOUN) for form in entry["also"]), sentence, formula
    )


def find_words(query: str) -> list[GlossaryWord]:
    """The glossary words whose forms or sentence contain all words of ``query``; an exact match comes first."""
    parts, exact = query.casefold().split(), _words_by_form().get(query.casefold().strip())
    texts = {word: " ".join((word.word, *word.also, word.sentence)).casefold() for word in words()}
    matches = [word for word, text in texts.items() if all(part in text for part in parts)]
    return sorted(matches, key=lambda word: word != exact)


def link_words(markdown: str, explained: Collection[str]) -> tuple[str, list[str]]:
    """Our own Markdown with the first use of each word that is not in ``explained`` as a link, and these words.

    A link leads to the word on the page Methods; its title is the sentence.
    """
    used: list[str] = []

    def replace_word(match: re.Match[str]) -> str:
        word = _words_by_form().get(match[0].casefold())
        if word is None or word.word in explained or word.word in used:
            return match[0]
        used.append(word.word)
        return f'[{match[0]}](methods?word={quote_plus(word.word)} "{word.sentence}")'

    return _compile_pattern().sub(replace_word, markdown), used


@cache
def _words_by_form() -> dict[str, GlossaryWord]:
    return {form.casefold(): word for word in words() for form in (word.word, *word.also)}


@cache
def _compile_pattern() -> re.Pattern[str]:
    """Matches unchangeable Markdown, or a form of a word; longer forms come first: "task vector" before "task"."""
    forms = "|".join(re.escape(form) for form in sorted(_words_by_form(), key=len, reverse=True))
    return re.compile(rf"{UNCHANGED_MARKDOWN}|(?<![\w-])(?:{forms})(?![\w-])", re.IGNORECASE)


def words_markdown(entries: Collection[GlossaryWord]) -> Iterator[str]:
    """The Markdown of words with their formulas."""
    for word in entries:
        yield f"### {word.word[:1].upper()}{word.word[1:]}\n\n{word.sentence} ${word.formula}$"

"""The words of the pages: short, with a formula that can be set, used on pages, and explained where first used."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from page_harness import EXPLAINED, words
from streamlit.testing.v1 import AppTest

from app.reading import glossary
from app.snapshot.formulas import mathml
from merging.base.errors import RecipeError

ROOT = Path(__file__).resolve().parents[2]
WORDS = glossary.words()
SETTABLE = re.compile(  # what the formulas use of LaTeX
    r"\\(?:argmax|bar|begin|big|circ|cos|dots|end|frac|gamma|hat|in|lambda|langle|mapsto|mathbb|mathrm|max|min|neq|notin|"
    r"odot|phi|pm|rangle|Sigma|sqrt|sum|tau|text|textstyle|tfrac|theta|times|to|top|underbrace)(?![a-zA-Z])|"
    r"\\[,;{}| ]|\\\|"
)


def test_the_glossary_is_as_long_as_pages_need() -> None:
    assert 30 <= len(WORDS) <= 55
    forms = [form.casefold() for word in WORDS for form in (word.word, *word.also)]
    assert len(set(forms)) == len(forms)


def test_every_word_has_one_short_sentence_and_a_formula() -> None:
    for word in WORDS:
        assert 20 <= len(word.sentence) <= 130 and word.sentence.endswith("."), word
        assert word.sentence.count(". ") == 0, word
        assert not set(word.sentence) & set('"[]<>*_`$\\'), word  # it stands in the title of a link
        assert not set(word.formula) & set("$<>`"), word
        rest = re.sub(r"\\(?:big|Big|bigl|bigr)(?=[^a-zA-Z])", "", word.formula)
        assert "\\" not in SETTABLE.sub("", rest), word
        assert rest.replace(r"\{", "").count("{") == rest.replace(r"\}", "").count("}"), word
        assert mathml(word.formula).startswith("<math>"), word


def test_every_word_is_used_on_pages() -> None:
    files = [*(ROOT / "app").rglob("*.py"), *(ROOT / "app" / "lessons").glob("*.yaml"), *(ROOT / "viz").rglob("*.py")]
    texts = "\n".join(path.read_text("utf-8") for path in files).casefold()
    for word in WORDS:
        forms = "|".join(re.escape(form.casefold()) for form in (word.word, *word.also))
        assert re.search(rf"(?<![\w-])(?:{forms})(?![\w-])", texts), word


def test_only_the_first_use_is_explained() -> None:
    text, used = glossary.link_words("Experts and an expert; task vectors of a task.", {"task"})
    assert used == ["expert", "task vector"]
    assert EXPLAINED.sub(r"<\1>", text) == "<Experts> and an expert; <task vectors> of a task."
    assert '"A copy of the pretrained model that was fine-tuned on one data set."' in text


def test_what_is_no_word_stays() -> None:
    for markdown in ("[the expert](https://x.org)", "$expert$", "`expert`", r"\expert", "expertise", "an-expert",
                     "https://x.org/expert"):  # fmt: skip
        assert glossary.link_words(markdown, ()) == (markdown, [])


def test_a_bad_glossary_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glossary, "GLOSSARY_FILE", tmp_path / "glossary.yaml")
    for content, problem in {
        "version: 2\nwords: []": "version",
        "version: 1\nwords: [{word: x, also: [], sentence: y}]": "lacks 'formula'",
        "version: 1\nwords: [{word: x, colour: red}]": "unknown field 'colour'",
    }.items():
        (tmp_path / "glossary.yaml").write_text(content, "utf-8")
        glossary.words.cache_clear()
        with pytest.raises(RecipeError, match=problem):
            glossary.words()
    glossary.words.cache_clear()


@pytest.mark.full
def test_pages_explain_and_methods_lists_the_words(open_app: Callable[..., AppTest], library: Path) -> None:
    masks: Any = open_app("masks", library)
    shown = [element.value for kind in ("markdown", "caption") for element in masks.get(kind)]
    links = re.findall(r"\(methods\?word=(\S+) ", "\n".join(shown))
    assert "task+vector" in links and len(set(links)) == len(links)

    at: Any = open_app("methods", library, word="task vector")
    assert at.header[0].value == "Words" and at.text_input(key="word").value == "task vector"
    assert words(at).index("### Task vector") < words(at).index("### Edit")

    at = open_app("methods", library)
    assert at.header[0].value != "Words"
    assert "### Task vector" in words(at) and "### Sweep" in words(at)
    at = at.text_input(key="word").set_value("harmonic").run()
    assert "### H-score" in words(at) and "### Sweep" not in words(at)
    at = at.text_input(key="word").set_value("nothing of that kind").run()
    assert "No word matches." in words(at)

"""Phrases that were replaced by plain words may not come back: no string and no docstring of the program has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("app", "viz", "merging")
# Old phrase -> what to write instead. Only whole words count, in any case; strings of a single word are keys or names.
PHRASES = {
    # on pages
    "mend": "fix",
    "mends": "fixes",
    "mended": "fixed",
    "take it along": "export",
    "take along": "export",
    "taken along": "exported",
    "taking merged models along": "exports of merged models",
    "take the model along": "export the model",
    "take their models along": "export",
    "look at this first": "check this first",
    "data sets of yours": "your data sets",
    "images of yours": "your images",
    "checkpoints of yours": "your checkpoints",
    "checkpoints of your own": "your checkpoints",
    "models of yours": "your models",
    "model of yours": "one of your models",
    "file of yours": "your file",
    "folder of yours": "your folder",
    "called like a task": "named like a task",
    "called like the": "named like the",
    "called like its": "named like its",
    "called like their": "named like their",
    "called like checkpoints": "named like checkpoints",
    "called like runs": "named like runs",
    "called like a pretrained": "named like a pretrained",
    "like the pretrained model itself": "the pretrained model itself",
    "gives up": "drops",
    "a run that is here": "an available run",
    "is not here any more": "is no longer available",
    "a choice of my own": "my own choice",
    "whoever sent the link": "the sender",
    "there is no room for more": "the most that fit",
    "what takes room": "what uses disk space",
    "look again": "refresh",
    "looking into files": "inspecting files",
    "looking at the data set": "inspecting the data set",
    "follows you to every page": "shows the progress on every page",
    "as the files say": "from the files",
    "names as they were": "original names",
    "where ours decides": "choices of our implementation",
    "there is nothing to set": "it has no parameters",
    "take a filter away": "remove a filter",
    "is a word like others here": "is an ordinary word here",
    "let it stand": "allow it",
    "put back to the pretrained": "reset to the pretrained model",
    "expert beside them": "compare with an expert",
    "surer than": "more certain than",
    "order compares": "compare only their order",
    "bear a comparison": "can be compared",
    "plays no part here": "does not matter here",
    "that is looked at": "shown",
    "the larger camp": "the majority sign",
    "like stands by like": "similar experts stand side by side",
    "a click on a head sorts": "click a column head to sort",
    "one a line": "one per line",
    "the point in hand": "the current point",
    "no run's score": "(sampled)",
    "no run’s score": "(sampled)",
    "predictions become sure": "predictions become confident",
    "fix my guess": "lock in",
    "begin anew": "start over",
    "held against": "compared with; the model itself is the reference",
    "as if independent": "assuming independence",
    "not shown here": "not reproduced here",
    "no difference to be seen": "no significant difference",
    "of the recipe differ": "a sentence of what differs: adds DARE",
    "of the recipe differs": "a sentence of what differs: adds DARE",
    # in docstrings and messages
    "somebody": "name the reader, the user, the caller",
    "anybody": "untrusted, of any origin",
    "anybody's": "untrusted text",
    "nobody": "no caller, no expert; shared, never changed",
    "told apart": "distinguished",
    "tell them apart": "distinguish them",
    "goes by": "follows",
    "of one's own": "the user's own",
    "what people read, and links say": "label in pickers and links",
    "what was asked": "name what was requested",
    "what is to be said of it": "name what is stated",
    "who do not want to know": "name who is meant",
    "a file that is as it was": "a file that has not changed",
    "if not to be had": "on error",
    "who lies where": "energy by expert",
    "who pulls with whom": "which agree",
    "as far as there are runs": "that have runs",
    "and a way on": "and a button that goes on",
}

# Labels that are usual words within a sentence: only a string that is nothing else counts.
LABELS = {"go there": "switch to it", "work on it": "switch to it", "it looks": "verdict"}


def plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string, docstrings included; in an f-string every expression reads as "{}"."""
    tree = ast.parse(source)
    pieces = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            yield node.lineno, node.value


PATTERN = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, sorted(PHRASES, key=len, reverse=True)))})(?!\w)")


def hits(source: str) -> list[tuple[int, str]]:
    """Line and phrase of every phrase in the strings of a file, and of every old label."""
    found = []
    for line, text in strings(source):
        words = plain(text)
        phrases = PATTERN.findall(words) if " " in words else []
        found += [(line, phrase) for phrase in [*phrases, *([words] if words in LABELS else [])]]
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_no_phrase_comes_back(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {phrase!r}; write: {(PHRASES | LABELS)[phrase]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, phrase in hits(path.read_text("utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("pattern", ["app/**/*.yaml", "app/**/*.j2"])
def test_no_phrase_comes_back_in_lessons_and_templates(pattern: str) -> None:
    found = {path.name: PATTERN.findall(plain(path.read_text("utf-8"))) for path in ROOT.glob(pattern)}
    assert found and not any(found.values()), found


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize(
    "source",
    [
        'def f() -> None:\n    """One {}, two."""\n',
        'label = "One {}, two."\n',
        'label = f"One {}, {{2 + 2}}."\n',
        '"""One {upper}."""\n',
        'call(help="One {broken}, two.")\n',
    ],
    ids=["docstring", "constant", "f-string", "upper case", "two lines"],
)
def test_every_phrase_is_seen(phrase: str, source: str) -> None:
    text = source.format(phrase, upper=phrase.upper(), broken=phrase.replace(" ", ' "\n    "', 1))
    assert phrase in [found for _, found in hits(text)]


@pytest.mark.parametrize("label", LABELS)
def test_every_label_is_seen(label: str) -> None:
    assert hits(f'button("{label.capitalize()}")') == [(1, label)]


@pytest.mark.parametrize("text", ["recommended", "{'nobody'}", "undergoes bypass", "of one's owner", "values go there"])
def test_other_words_are_not(text: str) -> None:
    assert not hits(f'x = f"{text}"') and not hits('USERS = {"nobody", "root"}')

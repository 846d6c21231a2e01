"""Phrases that were replaced by plain words may not come back in any text of the program."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Whole words, in any case, within a text of several words; after the sign, what to write instead.
PHRASES = """
mend(s|ed)? = fix | tak(e|en|ing)( \\w+){0,2} along = export | look at this first = check this first
(data sets|images|checkpoints|models?|file|folder) of yours = your
(checkpoints of your|choice of my|of one's) own = your
called like (a task|the|its|their|checkpoints|runs|a pretrained) = named like | like the pretrained model itself
gives up = drops | a run that is here = an available run | is not here any more | whoever sent the link = the sender
there is no room for more = the most that fit | what takes room = what uses disk space | look again = refresh
looking (into files|at the data set) = inspecting | follows you to every page | as the files say
names as they were = original names | where ours decides = choices of our implementation | there is nothing to set
take a filter away = remove | is a word like others here | let it stand = allow it
put back to the pretrained = reset | expert beside them | surer than = more certain than | order compares
bear a comparison = can be compared | plays no part here = does not matter here | that is looked at = shown
the larger camp = the majority sign | like stands by like | a click on a head sorts | one a line = one per line
the point in hand = the current point | no run['’]s score = (sampled) | predictions become sure = confident
fix my guess = lock in | begin anew = start over | held against = compared with | as if independent
not shown here = not reproduced here | no difference to be seen | of the recipe differs?
(some|any|no)body('s)? = the user, untrusted, no caller | told apart | tell them apart = distinguish
goes by = follows | what people read, and links say | what was asked = what was requested | what is to be said of it
who do not want to know | a file that is as it was = has not changed | if not to be had | who lies where
who pulls with whom | as far as there are runs = that have runs | and a way on
\\A(go there|work on it|it looks)\\Z = switch to it, verdict
"""
LISTED = [line.split(" = ")[0] for line in re.split(r" \| |\n", PHRASES.strip())]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string of a Python file, docstrings included, where {} is an expression; else the file."""
    if path.suffix != ".py":
        yield 1, path.read_text("utf-8")
        return
    tree = ast.parse(path.read_text("utf-8"))
    pieces = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            yield node.lineno, node.value


def test_no_phrase_comes_back() -> None:
    files = [path for room in ("app", "viz", "merging") for path in (ROOT / room).rglob("*.*")]
    lines = [
        (path, line, " ".join(text.split()).casefold())
        for path in sorted(path for path in files if path.suffix in (".py", ".yaml", ".j2"))
        for line, text in texts(path)
        if " " in text
    ]
    whole = "\n".join(text for _, _, text in lines)  # most phrases are plain text, which is found sooner than a pattern
    possible = [phrase for phrase in LISTED if phrase != re.escape(phrase).replace("\\ ", " ") or phrase in whole]
    pattern = re.compile("|".join(rf"(?<!\w)(?:{phrase})(?!\w)" for phrase in possible))
    found = [
        f"{path.relative_to(ROOT)}:{line}: {phrase[0]!r}"
        for path, line, text in lines
        for phrase in pattern.finditer(text)
    ]
    assert not found, "\n".join(["What to write instead stands in PHRASES:", *found])

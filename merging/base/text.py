"""Short texts for messages, and Markdown in which untrusted text is never read as markup."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

# ASCII punctuation, all of which can be escaped in Markdown.
MARKUP_CHARACTERS = re.compile(r"([\\`*_{}\[\]()#+\-.!|~$:<>&\"'=@/])")


def escape_markdown(text: str) -> str:
    """One line of Markdown that shows exactly the characters of ``text``."""
    return MARKUP_CHARACTERS.sub(r"\\\1", text)


def code_block(text: str, language: str = "") -> str:
    """A Markdown block of code; its fence is longer than any run of backticks in the text."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of cells that are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def percent_with_interval(share: float, low: float, high: float) -> str:
    """'72.8 % [70.1, 75.3]': a share in [0, 1] with its interval; a dash for NaN."""
    return "–" if math.isnan(share) else f"{100 * share:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def exact_text(value: float) -> str:
    """The number as text that reads back as exactly the same number: '0.3', '2'."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def size_text(count: float) -> str:
    """A number of bytes in words: '1.2 GB'."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def estimate_basis(is_measured: bool, noun: str) -> str:
    """What an estimate of time is based on: 'from earlier runs on this machine' if ``is_measured``."""
    return (
        f"from earlier {noun}s on this machine"
        if is_measured
        else f"a guess until this machine has computed such a {noun}"
    )


def duration_text(seconds: float) -> str:
    """'0.4 s', '12 s', '3 min 20 s', '2 h 5 min'."""
    if seconds < 9.95:
        return f"{max(seconds, 0.1):.1f} s"
    whole_seconds = round(seconds)
    minutes, remainder = divmod(whole_seconds, 60)
    if whole_seconds < 60:
        return f"{whole_seconds} s"
    return f"{minutes} min {remainder} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def plural(count: int, singular: str, plural_form: str = "") -> str:
    """'1 tensor', '2,000 tensors': a number with its noun; ``plural_form`` is by default ``singular`` with an s."""
    return f"{count:,} {singular if count == 1 else plural_form or f'{singular}s'}"


def first_few(items: Iterable[object], limit: int = 5) -> str:
    """'a, b, c and 7 more': a list short enough for a sentence."""
    texts = [printable(str(item)) for item in items]
    beginning = ", ".join(texts[:limit])
    return beginning if len(texts) <= limit else f"{beginning} and {len(texts) - limit} more"


def printable(text: str, limit: int = 120) -> str:
    """Untrusted text, cut, with invisible characters escaped, so that it cannot fake lines or reverse text."""
    visible = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text[:limit])
    return visible if len(text) <= limit else f"{visible}…"


def visible_lines(text: str) -> str:
    """Untrusted text with its line breaks; other invisible characters are escaped."""
    return text if text.isprintable() else "\n".join(printable(line, len(line)) for line in text.split("\n"))


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """' Did you mean x?' or the empty string; case is ignored."""
    choices_by_lower = {choice.casefold(): choice for choice in choices}
    nearest = get_close_matches(word.casefold(), choices_by_lower, n=1, cutoff=0.5)
    return f" Did you mean {choices_by_lower[nearest[0]]!r}?" if nearest else ""

"""What must not leave this machine: folders of it, the names of its user and itself, addresses on it."""

from __future__ import annotations

import contextlib
import getpass
import html
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from viz.report.contents import Report, ReportError, ReportView, Source

# Accounts and machines that many computers have: the words tell nothing of anybody, and some are words like others.
COMMON = {
    "admin", "administrator", "app", "appuser", "container", "debian", "docker", "ec2-user", "guest", "home", "jovyan",
    "laptop", "localhost", "nobody", "root", "runner", "server", "streamlit", "ubuntu", "user", "vscode",
}  # fmt: skip
SHORTEST = 3  # letters of a name that is looked for: shorter ones are in too many words
PATHS = (
    re.compile(r"(?<![\w.~\-/<:%}])/(?:[\w.+@-]+/)+[\w.+@-]*"),  # /home/ann/x
    re.compile(r"(?<!\w)~/\w"),
    re.compile(r"\b[A-Za-z]:[\\/](?!/)\w"),  # C:\Users
    re.compile(r"\\\\[\w.-]+\\+\w"),  # \\server\share
    re.compile(r"\bfile:/", re.IGNORECASE),
)
ADDRESSES = re.compile(r"\blocalhost\b|\b127(?:\.\d{1,3}){3}\b|\b0\.0\.0\.0\b|\[::1\]", re.IGNORECASE)
NUMBERS = re.compile(r'"bdata":"[A-Za-z0-9+/=]*"')  # arrays in a figure; by chance they could spell any name
MEND = "Change that text, or remove the view from the report."


@dataclass(frozen=True)
class Private:
    """Folders, wherever they appear, and names, where they stand as words of their own."""

    folders: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def but(self, words: Iterable[str]) -> Private:
        """The same without the names that were found to be words like others."""
        allowed = {word.casefold() for word in words}
        return Private(self.folders, tuple(name for name in self.names if name.casefold() not in allowed))


def this_machine(folders: Iterable[str] = ()) -> Private:
    """What tells this user and this machine; ``folders`` are more of them."""
    home, here = Path.home(), Path.cwd()
    names = [home.name, socket.gethostname(), socket.gethostname().partition(".")[0]]
    with contextlib.suppress(OSError, KeyError, ImportError):  # an account without a name
        names.append(getpass.getuser())
    known = [str(home), str(here), *folders]
    return Private(
        tuple(dict.fromkeys(folder for folder in known if len(folder) > 1)),
        tuple(dict.fromkeys(name for name in names if len(name) >= SHORTEST and name.casefold() not in COMMON)),
    )


def leak(text: str, private: Private) -> tuple[str, str]:
    """What a text gives away, as a sentence's object, and the name in it if it is one; both empty if nothing."""
    plain = text.casefold()
    for folder in private.folders:
        if folder.casefold() in plain:
            return "the path of a folder on this machine", ""
    for pattern in PATHS:
        if found := pattern.search(text):
            return f"the path “{found[0][:60]}”", ""
    if found := ADDRESSES.search(text):
        return f"“{found[0]}”, an address on this machine", ""
    for name in private.names:
        if re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", plain):
            return f"“{name}”, the name of this machine or of its user", name
    return "", ""


def check(report: Report, private: Private) -> None:
    """Look at every text that a report is made of, before anything is drawn. Raises ReportError naming the view."""
    _refuse(report.title, "The report's title", private)
    _refuse(report.introduction, "The introduction", private)
    for number, view in enumerate(report.views, 1):
        for what, text in _texts(view):
            _refuse(text, f"The {what} of view {number}, “{view.title or view.key}”,", private)
    for source in report.sources:
        for text in _source_texts(source):
            _refuse(text, f"{source.kind} {source.id}, “{source.title[:60]}”,", private)


def check_document(document: str, private: Private) -> None:
    """Look at a finished document once more, as text of any kind. Raises ReportError."""
    bare = html.unescape(NUMBERS.sub("", document))
    _refuse(bare.replace("\\\\", "\\"), "The finished document", private)  # JSON writes every backslash twice


def _refuse(text: str, where: str, private: Private) -> None:
    found, word = leak(text, private)
    if found:
        raise ReportError(f"{where} holds {found}, which a report must not tell. {MEND}", word)


def _texts(view: ReportView) -> Iterator[tuple[str, str]]:
    yield from (("title", view.title), ("note", view.note), ("caption", view.caption), ("address", view.place))
    yield from (("table", str(name)) for name in view.table.columns)
    for name in view.table.columns:
        if not pd.api.types.is_numeric_dtype(view.table[name]):
            yield "table", _joined(view.table[name])
    yield "figure", "\n".join(_strings(view.options))


def _source_texts(source: Source) -> Iterator[str]:
    yield from (source.title, source.recipe)
    yield from (text for fact in (*source.facts, *source.digests) for text in fact)


def _joined(column: pd.Series[Any]) -> str:
    return "\n".join(map(str, column.unique()))


def _strings(value: Any) -> Iterator[str]:
    """Every text in an option of a chart."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for pair in value.items() for one in pair for text in _strings(one))
    elif isinstance(value, pd.DataFrame):
        yield from (_joined(value[name]) for name in value.columns)
    elif isinstance(value, list | tuple | set):
        yield from (text for one in value for text in _strings(one))

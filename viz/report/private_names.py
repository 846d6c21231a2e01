"""Finds private text in a report: folders of this machine, names of the machine and its user, addresses on it."""

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

from viz.report.report_contents import Report, ReportError, ReportView, Source

# Names of accounts and machines that many computers have: they identify no person, and some are ordinary words.
COMMON_NAMES = {
    "admin", "administrator", "app", "appuser", "container", "debian", "docker", "ec2-user", "guest", "home", "jovyan",
    "laptop", "localhost", "nobody", "root", "runner", "server", "streamlit", "ubuntu", "user", "vscode",
}  # fmt: skip
MIN_NAME_LETTERS = 3  # letters of the shortest name that is searched: shorter ones occur in too many words
PATH_PATTERNS = (
    re.compile(r"(?<![\w.~\-/<:%}])/(?:[\w.+@-]+/)+[\w.+@-]*"),  # /home/ann/x
    re.compile(r"(?<!\w)~/\w"),
    re.compile(r"\b[A-Za-z]:[\\/](?!/)\w"),  # C:\Users
    re.compile(r"\\\\[\w.-]+\\+\w"),  # \\server\share
    re.compile(r"\bfile:/", re.IGNORECASE),
)
ADDRESS_PATTERN = re.compile(r"\blocalhost\b|\b127(?:\.\d{1,3}){3}\b|\b0\.0\.0\.0\b|\[::1\]", re.IGNORECASE)
ARRAY_PATTERN = re.compile(r'"bdata":"[A-Za-z0-9+/=]*"')  # arrays in a figure, which could spell a name by chance
PICTURE_PATTERN = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=]*")  # pictures in a figure, for the same reason
FIX_HINT = "Change that text, or remove the view from the report."


@dataclass(frozen=True)
class PrivateNames:
    """Private folders, which may not appear anywhere, and private names, which may not appear as whole words."""

    folders: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def without_names(self, words: Iterable[str]) -> PrivateNames:
        """These folders and names without the names that the user allows as ordinary words."""
        allowed = {word.casefold() for word in words}
        return PrivateNames(self.folders, tuple(name for name in self.names if name.casefold() not in allowed))


def find_private_names(folders: Iterable[str] = ()) -> PrivateNames:
    """Folders and names that identify this user and this machine; ``folders`` are further private folders."""
    own_folders = [str(Path.cwd()), *folders]
    names = [socket.gethostname(), socket.gethostname().partition(".")[0]]
    with contextlib.suppress(RuntimeError):  # the account has no home
        own_folders.insert(0, str(Path.home()))
        names.insert(0, Path.home().name)
    with contextlib.suppress(OSError, KeyError, ImportError):  # the account has no name
        names.append(getpass.getuser())
    return PrivateNames(
        tuple(dict.fromkeys(folder for folder in own_folders if len(folder) > 1)),
        tuple(
            dict.fromkeys(
                name for name in names if len(name) >= MIN_NAME_LETTERS and name.casefold() not in COMMON_NAMES
            )
        ),
    )


def find_leak(text: str, private: PrivateNames) -> tuple[str, str]:
    """The first private part of a text, in words, and the private name if it is one; both empty for a clean text."""
    plain = text.casefold()
    for folder in private.folders:
        if folder.casefold() in plain:
            return "the path of a folder on this machine", ""
    for pattern in PATH_PATTERNS:
        if match := pattern.search(text):
            return f"the path “{match[0][:60]}”", ""
    if match := ADDRESS_PATTERN.search(text):
        return f"“{match[0]}”, an address on this machine", ""
    for name in private.names:
        if re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", plain):
            return f"“{name}”, the name of this machine or of its user", name
    return "", ""


def check_report(report: Report, private: PrivateNames) -> None:
    """Check every text of a report before its figures are drawn. Raises ReportError naming the view."""
    _refuse_leak(report.title, "The report's title", private)
    _refuse_leak(report.introduction, "The introduction", private)
    for number, view in enumerate(report.views, 1):
        for role, text in _list_texts(view):
            _refuse_leak(text, f"The {role} of view {number}, “{view.title or view.key}”,", private)
    for source in report.sources:
        for text in _list_source_texts(source):
            _refuse_leak(text, f"{source.kind} {source.id}, “{source.title[:60]}”,", private)


def check_document(document: str, private: PrivateNames) -> None:
    """Check the finished document once more, as plain text. Raises ReportError."""
    text = html.unescape(ARRAY_PATTERN.sub("", document))
    _refuse_leak(text.replace("\\\\", "\\"), "The finished document", private)  # JSON writes every backslash twice


def _refuse_leak(text: str, position: str, private: PrivateNames) -> None:
    private_part, word = find_leak(PICTURE_PATTERN.sub("", text), private)
    if private_part:
        raise ReportError(f"{position} contains {private_part}, which a report must not contain. {FIX_HINT}", word)


def _list_texts(view: ReportView) -> Iterator[tuple[str, str]]:
    yield from (("title", view.title), ("note", view.note), ("caption", view.caption), ("address", view.place))
    yield from (("table", str(name)) for name in view.table.columns)
    for name in view.table.columns:
        if not pd.api.types.is_numeric_dtype(view.table[name]):
            yield "table", _join_column(view.table[name])
    yield "figure", "\n".join(_list_strings(view.options))


def _list_source_texts(source: Source) -> Iterator[str]:
    yield from (source.title, source.recipe)
    yield from (text for fact in (*source.facts, *source.digests) for text in fact)


def _join_column(column: pd.Series[Any]) -> str:
    return "\n".join(map(str, column.unique()))


def _list_strings(value: Any) -> Iterator[str]:
    """Every text in an option of a chart."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for pair in value.items() for item in pair for text in _list_strings(item))
    elif isinstance(value, pd.DataFrame):
        yield from (_join_column(value[name]) for name in value.columns)
    elif isinstance(value, list | tuple | set):
        yield from (text for item in value for text in _list_strings(item))

"""A report tells nothing of this machine or of who works on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import viz_tables
from report_reader import ANN, report, source, view

from viz.report import private_names, render
from viz.report.private_names import PrivateNames, find_leak, find_private_names
from viz.report.report_contents import Report, ReportError, ReportView

PRIVATE: list[tuple[str, Callable[[str], Report], str]] = [
    ("title", lambda text: report(title=text), "The report's title"),
    ("introduction", lambda text: report(introduction=text), "The introduction"),
    ("note", lambda text: report(view(), view(note=text)), "note of view 2, “saliency_tensor”"),
    ("heading", lambda text: report(view(title=text)), "title of view 1"),
    ("caption", lambda text: report(view(caption=text, title="Mine")), "caption of view 1, “Mine”"),
    ("place", lambda text: report(view(place=f"masks?expert={text}")), "address of view 1"),
    ("table", lambda text: report(ReportView("saliency_tensor", hidden(text))), "table of view 1"),
    ("option", lambda text: report(view(options={"tensor": text})), "figure of view 1"),
    ("recipe", lambda text: report(sources=(source(recipe=f"pretrained: {text}"),)), "Run 0123456789ab, “TIES”"),
    ("fact", lambda text: report(sources=(source(facts=(("Remarks", text),)),)), "Run 0123456789ab"),
    ("input", lambda text: report(sources=(source(digests=((text, "5c"),)),)), "Run 0123456789ab"),
]


def hidden(text: str) -> pd.DataFrame:
    return viz_tables.saliency_tensor(3).assign(section=["block 0", "block 0", text])


@pytest.mark.parametrize(("what", "make", "named"), PRIVATE, ids=[case[0] for case in PRIVATE])
def test_what_is_private_is_refused_by_name(what: str, make: Callable[[str], Report], named: str) -> None:
    for text in ("/home/ann/experts/digits.pt", "made by ann", "ANN-laptop", "http://localhost:8501"):
        with pytest.raises(ReportError, match=named):
            render(make(text), ANN)
    private_names.check_report(make("made by Anna, annotated"), ANN)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/srv/work", "folder on this machine"),
        ("see /data/models/x.safetensors", "the path “/data/models/x.safetensors”"),
        ("~/x", "the path"),
        (r"C:\Users\x", "the path"),
        ("D:/models/x", "the path"),
        (r"\\server\share", "the path"),
        ("file:///x", "the path"),
        ("http://127.0.0.1:8501/masks", "an address"),
        ("on ann-laptop.", "the name of this machine"),
        ("in/out of domain, 1/2/3, a / b, 12:/", ""),
        ("https://arxiv.org/abs/2306.01708", ""),
        ("bundled:digits, masks?run=1&chain=ties:density=0.2;x", ""),
        ("annotation, Anna, planning", ""),
    ],
)
def test_what_gives_a_machine_away(text: str, found: str) -> None:
    assert (found in find_leak(text, ANN)[0]) if found else find_leak(text, ANN) == ("", "")


def test_a_name_that_is_a_word_can_be_allowed() -> None:
    made, fisher = report(introduction="Fisher merging."), PrivateNames((), ("fisher",))
    with pytest.raises(ReportError) as caught:
        render(made, fisher)
    assert caught.value.word == "fisher"
    assert render(made, fisher.without_names({"fisher"}))


def test_this_machine_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("HOME", "/home/zoe")
    monkeypatch.setenv("LOGNAME", "zoe")
    monkeypatch.setattr("socket.gethostname", lambda: "zoes-box.example")
    monkeypatch.chdir(tmp_path)
    found = find_private_names(["/mnt/store"])
    assert {"/home/zoe", str(tmp_path), "/mnt/store"} == set(found.folders)
    assert {"zoe", "zoes-box", "zoes-box.example"} == set(found.names)
    monkeypatch.setenv("LOGNAME", "root")
    assert "root" not in find_private_names().names  # the root mean square is no user


def test_the_finished_document_is_read_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_names, "check_report", lambda *_: None)
    with pytest.raises(ReportError, match="The finished document contains the path of a folder"):
        render(report(view(note="/home/ann/x")), ANN)
    with pytest.raises(ReportError, match="The finished document"):
        render(report(view(note="made by <ann>")), ANN)


def test_numbers_are_not_taken_for_names() -> None:
    private_names.check_document('{"bdata":"AAAA/ann/AAAA"}', ANN)
    with pytest.raises(ReportError):
        private_names.check_document('{"name":"x/ann/y"}', ANN)

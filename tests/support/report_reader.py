"""Small reports, and a reader that takes the document apart."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import viz_tables

from viz.report import document
from viz.report.private_names import PrivateNames
from viz.report.report_contents import Report, ReportView, Source

NOBODY = PrivateNames()
ANN = PrivateNames(("/home/ann", "/srv/work"), ("ann", "ann-laptop"))
PROGRAM = "Plotly"  # what stands for plotly.js
VOID = {"meta", "br", "wbr", "img", "link", "hr", "input"}


class Reader(HTMLParser):
    """Takes a document apart: elements with their attributes, scripts by kind, the text, and what is left open.

    plotly.js is not looked into.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.data: list[dict[str, Any]] = []
        self.style, self.words, self.open = "", "", []
        self.feed(text.replace(document.plotly_js(), PROGRAM))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside == "script" and "type" in self.elements[-1][1]:
            self.data.append(json.loads(text))
        elif inside == "script":
            self.scripts.append(text)
        elif inside == "style":
            self.style += text
        else:
            self.words += text

    def found(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def view(key: str = "saliency_tensor", **said: Any) -> ReportView:
    return ReportView(key, getattr(viz_tables, key)(4), **said)


def report(*views: ReportView, **said: Any) -> Report:
    return Report(**{"title": "A report", "introduction": "", "views": views or (view(),), "sources": (), **said})


def source(**said: Any) -> Source:
    facts, digests = (("Chain", "TIES (density 0.2)"), ("Seed", "0")), (("digits, sha-256", "5c" * 32),)
    found = {"id": "0123456789ab", "kind": "Run", "title": "TIES", "facts": facts, "digests": digests}
    return Source(**{**found, "recipe": "merge:\n  ties: {}\n", **said})

"""Formulas in LaTeX as MathML, which browsers draw without a program."""

from __future__ import annotations

from html import escape, unescape
from xml.etree.ElementTree import tostring

FORBIDDEN = {"href", "style", "class", "id"}  # attributes that LaTeX can set, and that do more than draw


def mathml(latex: str) -> str:
    """A formula as MathML; one that the converter does not know, or that holds more than a formula, as code."""
    from latex2mathml.converter import Converter

    try:
        (row,) = Converter().convert_to_element(latex)
        for element in row.iter():
            element.text = unescape(element.text or "")  # it writes signs as entities
            if "\\" in element.text or FORBIDDEN & set(element.attrib):
                raise ValueError(element.text)
    except Exception:  # it has a dozen of its own, and those of indices and iterators
        return f"<code>{escape(latex)}</code>"
    drawn = tostring(row, encoding="unicode", short_empty_elements=False)
    source = f'<annotation encoding="application/x-tex">{escape(latex)}</annotation>'
    return f"<math><semantics>{drawn}{source}</semantics></math>"

"""Formulas in LaTeX as MathML, which browsers draw without a program."""

from __future__ import annotations

from html import escape, unescape
from xml.etree.ElementTree import tostring

FORBIDDEN = {"href", "style", "class", "id"}  # attributes that LaTeX can set and that change more than the picture


def mathml(latex: str) -> str:
    """A formula as MathML, or as code if the converter does not know it or its result contains more than a formula."""
    from latex2mathml.converter import Converter

    try:
        (row,) = Converter().convert_to_element(latex)
        for element in row.iter():
            element.text = unescape(element.text or "")  # the converter writes signs as entities
            if "\\" in element.text or FORBIDDEN & set(element.attrib):
                raise ValueError(element.text)
    except Exception:  # the converter raises a dozen types of its own, and errors of indices and iterators
        return f"<code>{escape(latex)}</code>"
    formula = tostring(row, encoding="unicode", short_empty_elements=False)
    source = f'<annotation encoding="application/x-tex">{escape(latex)}</annotation>'
    return f"<math><semantics>{formula}{source}</semantics></math>"

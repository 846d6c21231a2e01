"""Widgets made from parameters. No page names a parameter: a method's declared bounds say everything."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, MutableMapping
from typing import Any

import streamlit as st

from app.text import in_words
from merging.errors import ParameterError
from merging.methods.params import Bound, Params

FEW = 4  # choices up to this many are shown side by side
FEW_STEPS = 400  # a slider with more stops than this cannot be set exactly


def draw(kind: type[Params], values: MutableMapping[str, Any], prefix: str) -> Params | None:
    """Draw a widget for every parameter and update ``values``. Returns None, and shows why, if one is wrong."""
    for name, bound in kind.bounds().items():
        values[name] = _widget(bound, values.get(name, bound.default), f"{prefix}.{name}")
    try:
        return kind.build(values)
    except ParameterError as error:
        st.error(str(error), icon=":material/error:")
        return None


def _widget(bound: Bound, value: Any, key: str) -> Any:
    """One parameter's widget. Its value lives under ``key``; ``value`` counts only when the widget is new.

    It is given to the widget, not put into the session: if the visitor interrupts the script before the browser has
    the widget, the browser sends what the widget itself begins with.
    """
    if not bound.optional:
        return _plain_widget(bound, value, key)
    words = f": {bound.unset}" if bound.unset else ""
    label, help_text = f"{bound.label}, automatic", f"Unset{words}. {bound.help}"
    if st.toggle(label, value is None, key=f"{key}.unset", help=help_text):
        return None
    low = bound.low if math.isfinite(bound.low) and not bound.open_low else bound.low + (bound.step or 0.01)
    return _plain_widget(bound, value if value is not None else (low if math.isfinite(low) else 0), key)


def _plain_widget(bound: Bound, value: Any, key: str) -> Any:
    if bound.kind == "flag":
        return st.toggle(bound.label, value, key=key, help=bound.help)
    if bound.kind == "choice":
        first = value if value in bound.choices else bound.default
        options: dict[str, Any] = {"key": key, "help": bound.help, "format_func": in_words}
        if len(bound.choices) <= FEW:
            return st.segmented_control(bound.label, bound.choices, default=first, required=True, **options)
        return st.selectbox(bound.label, bound.choices, bound.choices.index(first), **options)
    number = int if bound.kind == "integer" else float
    value = number(value)
    label, help_text = _label(bound), f"{bound.help} Takes {bound.describe()}."
    if span := _span(bound, st.session_state.get(key, value)):
        low, high, step = (number(part) for part in span)
        return st.slider(label, low, high, value, step, _format(bound, step), key=key, help=help_text)
    limits: dict[str, Any] = {"min_value": None, "max_value": None}
    if math.isfinite(bound.low):
        limits["min_value"] = number(bound.low)
    if math.isfinite(bound.high):
        limits["max_value"] = number(bound.high)
    step = number(bound.step) if bound.step else max(abs(float(bound.default or 1)) / 10, 1e-12)
    return st.number_input(
        label, **limits, value=value, step=step, format=_format(bound, step), key=key, help=help_text
    )


def _label(bound: Bound) -> str:
    return f"{bound.label} ${bound.symbol}$" if bound.symbol else bound.label


def _format(bound: Bound, step: float) -> str:
    if bound.kind == "integer":
        return "%d"
    return "%g" if step < 1e-4 else f"%.{max(0, -math.floor(math.log10(step) + 1e-9))}f"


def _span(bound: Bound, value: float) -> tuple[float, float, float] | None:
    """First stop, last stop and step of a slider that holds ``value``; None where a number field is better."""
    low, high = bound.slider or (bound.low, bound.high)
    if not (bound.step and math.isfinite(low) and math.isfinite(high)):
        return None
    if bound.open_low and low <= bound.low:
        low = min(bound.low + bound.step, value)
    low, high = min(low, value), max(high, value)  # a recipe may go beyond what the slider offers
    off_grid = abs((value - low) / bound.step - round((value - low) / bound.step)) > 1e-6
    if off_grid or (high - low) / bound.step > FEW_STEPS:
        return None
    return low, high, bound.step


def _in_latex(value: float) -> str:
    """A number as LaTeX: '0.3', '10^{300}', '2.5 \\cdot 10^{-5}'; 1e+300 would read as a sum."""
    digits, _, exponent = f"{value:g}".partition("e")
    if not exponent:
        return digits
    power = f"10^{{{int(exponent)}}}"
    return {"1": power, "-1": f"-{power}"}.get(digits, rf"{digits} \cdot {power}")


def filled_formula(formula: str, bounds: Mapping[str, Bound], values: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The formula with the chosen numbers for its symbols, and the parameters without a symbol in it, in words."""
    rest = []
    for name, bound in bounds.items():
        value = values.get(name)
        pattern = re.compile(re.escape(bound.symbol) + r"(?![A-Za-z])") if bound.symbol.startswith("\\") else None
        if pattern and isinstance(value, int | float) and pattern.search(formula):
            number = rf"\textcolor{{#0B6AA8}}{{{_in_latex(value)}}}"
            formula = pattern.sub(lambda _, number=number: number, formula)
        else:
            rest.append(f"{bound.label.lower()} ({in_words(value)})")
    lines = [line.strip().rstrip(",") for line in formula.split(r"\quad")]
    if len(lines) > 1:  # one below the other, which fits a narrow column
        formula = r"\begin{gathered}" + r" \\[4pt] ".join(lines) + r"\end{gathered}"
    return formula, rest

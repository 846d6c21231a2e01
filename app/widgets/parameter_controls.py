"""Widgets made from parameters. No page names a parameter: a method's declared bounds define its widgets."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.page_text import safe_text, value_in_words
from app.session import view_state
from merging.base.errors import ParameterError
from merging.methods.factor_rules import MAX_FACTOR, ROLES, SECTIONS, SELECTOR_PREFIXES, FactorRule
from merging.methods.params import TABLE, Bound, Params, is_effective

if TYPE_CHECKING:
    import pandas as pd

MAX_BUTTON_CHOICES = 4  # choices that are shown as buttons side by side; more are in a menu
# Pixels of each column; together they fill the page's column of controls.
COLUMN_WIDTHS = {"factor": 52, "blocks": 98, "roles": 84, "tensors": 92, "experts": 92}
MORE = "More options"
MAX_HELP = 800  # characters of a help text
MAX_SLIDER_STEPS = 400  # a slider with more steps cannot be set exactly


def draw_parameters(
    kind: type[Params],
    values: MutableMapping[str, Any],
    prefix: str,
    experts: Sequence[str] = (),
    titles: Mapping[str, str] = MappingProxyType({}),
) -> Params | None:
    """Draw a widget for each active parameter and update ``values``. Returns None, and shows why, if one is invalid.

    Tables of rules offer the names of the ``experts``; ``titles`` replaces the words of choices that are not clear by
    themselves. Refinements, which recipes leave out at their defaults, are folded away. A table with an invalid row
    leaves ``values`` unchanged, because no link can have it.
    """
    bounds = kind.bounds()
    chosen = {name: values.get(name, bound.default) for name, bound in bounds.items()}
    refined = [name for name, bound in bounds.items() if bound.later]

    def draw(name: str) -> None:
        if is_effective(bounds[name], chosen):
            chosen[name] = _draw_widget(bounds[name], chosen[name], f"{prefix}.{name}", experts, titles)

    for name in bounds:
        if name not in refined:
            draw(name)
    if refined:
        is_changed = any(chosen[name] != bounds[name].default for name in refined)
        with st.expander(MORE, is_changed, icon=":material/tune:"):
            for name in refined:
                draw(name)
    accepted = {
        name: bounds[name].normalize(new_value)
        for name, new_value in chosen.items()
        if bounds[name].kind != TABLE or bounds[name].accepts(new_value)
    }
    values.update(accepted)
    try:
        return kind.build(chosen)
    except ParameterError as error:
        st.error(str(error), icon=":material/error:")
        return None


def _draw_widget(bound: Bound, value: Any, key: str, experts: Sequence[str], titles: Mapping[str, str]) -> Any:
    """One parameter's widget. The session has its value under ``key``; ``value`` counts only for a new widget.

    ``value`` is the widget's default, not written into the session: if the visitor interrupts the script before the
    browser has the widget, the browser sends the widget's default.
    """
    if bound.kind == TABLE:
        return _draw_table(bound, value, key, experts)
    if not bound.optional:
        return _draw_plain_widget(bound, value, key, titles)
    words = f": {bound.unset}" if bound.unset else ""
    label, help_text = f"{bound.label}, automatic", safe_text(f"Unset{words}. {bound.help}", MAX_HELP)
    if st.toggle(label, value is None, key=f"{key}.unset", help=help_text):
        return None
    low = bound.low if math.isfinite(bound.low) and not bound.open_low else bound.low + (bound.step or 0.01)
    return _draw_plain_widget(bound, value if value is not None else (low if math.isfinite(low) else 0), key, titles)


def _draw_plain_widget(bound: Bound, value: Any, key: str, titles: Mapping[str, str]) -> Any:
    if bound.kind == "flag":
        return st.toggle(bound.label, value, key=key, help=safe_text(bound.help, MAX_HELP))
    if bound.kind == "choice":
        choice_value = value if value in bound.choices else bound.default
        options: dict[str, Any] = {
            "key": key, "help": safe_text(bound.help, MAX_HELP),
            "format_func": lambda choice: titles.get(choice) or value_in_words(choice),
        }  # fmt: skip
        if len(bound.choices) <= MAX_BUTTON_CHOICES:
            return st.segmented_control(bound.label, bound.choices, default=choice_value, required=True, **options)
        return st.selectbox(bound.label, bound.choices, bound.choices.index(choice_value), **options)
    number = int if bound.kind == "integer" else float
    value = number(value)
    label, help_text = _label(bound), safe_text(f"{bound.help} Takes {bound.describe()}.", MAX_HELP)
    if slider_range := _slider_range(bound, st.session_state.get(key, value)):
        low, high, step = (number(limit) for limit in slider_range)
        return st.slider(label, low, high, value, step, _number_format(bound, step), key=key, help=help_text)
    limits: dict[str, Any] = {"min_value": None, "max_value": None}
    if math.isfinite(bound.low):
        limits["min_value"] = number(bound.low)
    if math.isfinite(bound.high):
        limits["max_value"] = number(bound.high)
    step = number(bound.step) if bound.step else max(abs(float(bound.default or 1)) / 10, 1e-12)
    return st.number_input(
        label, **limits, value=value, step=step, format=_number_format(bound, step), key=key, help=help_text
    )


def _draw_table(bound: Bound, rules: Sequence[FactorRule], key: str, experts: Sequence[str]) -> list[dict[str, Any]]:
    """A table with a row for each rule, as plain data; rows in which nothing is filled in do not count.

    Blocks and sections are one column, since no tensor is in both.
    """
    import pandas as pd

    start_key = f"{key}.start"  # the widget stores later edits
    if key not in st.session_state:
        rows = [
            {name: list(getattr(rule, name)) for name in COLUMN_WIDTHS if name in SELECTOR_PREFIXES} for rule in rules
        ]
        table = pd.DataFrame(rows, columns=[name for name in COLUMN_WIDTHS if name in SELECTOR_PREFIXES], dtype=object)
        table["blocks"] = pd.Series([", ".join((*rule.blocks, *rule.sections)) for rule in rules], dtype=object)
        table.insert(0, "factor", pd.Series([rule.factor for rule in rules], dtype=float))
        st.session_state[start_key] = table
    table = st.session_state[start_key]
    st.markdown(bound.label, help=safe_text(f"{bound.help} Takes {bound.describe()}.", MAX_HELP))
    edited = st.data_editor(
        table,
        key=key,
        num_rows="dynamic",
        hide_index=True,
        column_config=_make_columns(table, experts),
        alt=bound.label,
    )
    rows = [{**row, "factor": None if pd.isna(row["factor"]) else row["factor"]} for row in edited.to_dict("records")]
    filled = [{name: value for name, value in row.items() if value not in (None, [], "")} for row in rows]
    return [_split_sections(row) for row in filled if row]


def _split_sections(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a rule with the sections taken out of the column of blocks."""
    words = [word.strip() for word in str(row.pop("blocks", "")).split(",") if word.strip()]
    sections, blocks = ([word for word in words if (word in SECTIONS) == is_section] for is_section in (True, False))
    return row | ({"sections": sections} if sections else {}) | ({"blocks": ", ".join(blocks)} if blocks else {})


def _make_columns(table: pd.DataFrame, experts: Sequence[str]) -> dict[str, Any]:
    """Settings of the columns of a table of rules; lists offer the known names and those in the table."""
    config = st.column_config
    offered = {"roles": ROLES, "experts": experts, "tensors": ()}
    columns: dict[str, Any] = {
        name: config.MultiselectColumn(
            name.capitalize(),
            width=COLUMN_WIDTHS[name],
            options=list(dict.fromkeys([*names, *(word for words in table[name] for word in words)])),
            accept_new_options=name == "tensors",
            help=f"{'Names, or patterns such as *.ln_1.weight. ' if name == 'tensors' else ''}Empty: all.",
        )
        for name, names in offered.items()
    }
    columns["factor"] = config.NumberColumn(
        "×",
        min_value=-MAX_FACTOR,
        max_value=MAX_FACTOR,
        format="plain",
        width=COLUMN_WIDTHS["factor"],
        help="The factor.",
    )
    columns["blocks"] = config.TextColumn(
        "Blocks",
        width=COLUMN_WIDTHS["blocks"],
        help=f"Numbers and ranges such as 0-1, 3, or {' or '.join(SECTIONS)}. Empty: all.",
    )  # fmt: skip
    return columns


def _label(bound: Bound) -> str:
    return f"{bound.label} ${bound.symbol}$" if bound.symbol else bound.label


def _number_format(bound: Bound, step: float) -> str:
    if bound.kind == "integer":
        return "%d"
    return "%g" if step < 1e-4 else f"%.{max(0, -math.floor(math.log10(step) + 1e-9))}f"


def _slider_range(bound: Bound, value: float) -> tuple[float, float, float] | None:
    """First stop, last stop and step of a slider that holds ``value``; None where a number field is better."""
    low, high = bound.slider or (bound.low, bound.high)
    if not (bound.step and math.isfinite(low) and math.isfinite(high)):
        return None
    if bound.open_low and low <= bound.low:
        low = min(bound.low + bound.step, value)
    low, high = min(low, value), max(high, value)  # a recipe may have a value outside of the slider's usual range
    off_grid = abs((value - low) / bound.step - round((value - low) / bound.step)) > 1e-6
    if off_grid or (high - low) / bound.step > MAX_SLIDER_STEPS:
        return None
    return low, high, bound.step


def _latex_number(value: float) -> str:
    """A number as LaTeX: '0.3', '10^{300}', '2.5 \\cdot 10^{-5}'; 1e+300 would read as a sum."""
    digits, _, exponent = f"{value:g}".partition("e")
    if not exponent:
        return digits
    power = f"10^{{{int(exponent)}}}"
    return {"1": power, "-1": f"-{power}"}.get(digits, rf"{digits} \cdot {power}")


def fill_formula(formula: str, bounds: Mapping[str, Bound], values: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The formula with the chosen numbers for its symbols, and the parameters without a symbol in it, in words."""
    without_symbol = []
    for name, bound in bounds.items():
        value = values.get(name)
        if bound.later and value == bound.default:
            continue
        pattern = re.compile(re.escape(bound.symbol) + r"(?![A-Za-z])") if bound.symbol.startswith("\\") else None
        if pattern and isinstance(value, int | float) and pattern.search(formula):
            number = rf"\textcolor{{{view_state.LINK_COLORS[view_state.has_dark_ground()]}}}{{{_latex_number(value)}}}"
            formula = pattern.sub(lambda _, number=number: number, formula)
        else:
            without_symbol.append(f"{bound.label.lower()} ({value_in_words(value)})")
    lines = [line.strip().rstrip(",") for line in formula.split(r"\quad")]
    if len(lines) > 1:  # one above the other, to fit a narrow column
        formula = r"\begin{gathered}" + r" \\[4pt] ".join(lines) + r"\end{gathered}"
    return formula, without_symbol

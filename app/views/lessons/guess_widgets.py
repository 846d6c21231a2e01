"""Guesses: the widgets that take a guess, and the table of the picture that compares it with the measured result.

Facts are the measured numbers that a guess is compared with. A guess is a tuple of numbers: a number's value, the index
of a choice, the indices of an order or of marked cells, or the values of a curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import expert_names
from app.views.lessons.learner import LessonPosition
from merging.teaching.fact import Fact
from merging.teaching.lesson import Guess
from viz.figure_text import clean_text

if TYPE_CHECKING:
    import pandas as pd

    TableAndOptions = tuple[pd.DataFrame, dict[str, Any]]  # of a chart

GUESS_LABEL, TRUTH_LABEL = "Your guess", "Measured"
SLIDER_STEPS = 100  # stops of a slider
NAN = float("nan")


def list_option_names(guess: Guess, facts: Sequence[Fact]) -> list[str]:
    """The options as plain text: those of the guess, or the cells of the map that the fact is about."""
    if guess.kind == "cells" and facts:
        return [clean_text(f"{row}, {column}", 160) for row, column in list_cell_names(facts[0])]
    return [clean_text(option, 160) for option in guess.options]


def list_cell_names(fact: Fact) -> list[tuple[str, str]]:
    """The (row, column) of every cell of a map, with experts named as on pages."""
    names = expert_names.expert_names(list(dict.fromkeys(cell.row for cell in fact.cells)))
    return [(names.get(cell.row, cell.row), page_text.correct_titles(cell.column)) for cell in fact.cells]


def draw_guess_widget(
    position: LessonPosition, guess: Guess, facts: Sequence[Fact], locked_guess: tuple[float, ...] | None
) -> tuple[float, ...] | None:
    """Draw the widget of a guess, starting at the ``locked_guess``; returns the guess, or None if it is incomplete."""
    key = make_widget_key(position, locked_guess)
    if guess.kind == "number":
        return (_draw_slider(guess, "Your guess", locked_guess[0] if locked_guess else None, key),)
    if guess.kind == "curve":
        return tuple(
            _draw_slider(guess, f"At {x:g}", locked_guess[index] if locked_guess else None, f"{key}_{index}")
            for index, x in enumerate(guess.at)
        )
    names = list_option_names(guess, facts)
    if guess.kind == "choice":
        chosen_name = st.radio("Your guess", names, int(locked_guess[0]) if locked_guess else None, key=key)
        return None if chosen_name is None else (float(names.index(chosen_name)),)
    max_options, label = guess.most, f"Click up to {guess.most} cells, or choose"
    if guess.kind == "order":
        max_options, label = len(names), "Choose all of them, the first one first"
    default = [names[int(index)] for index in locked_guess or () if index < len(names)]
    chosen_names = st.multiselect(label, names, default, key=key, max_selections=max_options)
    is_complete = len(chosen_names) == max_options if guess.kind == "order" else bool(chosen_names)
    return tuple(float(names.index(name)) for name in chosen_names) if is_complete else None


def toggle_cell(key: str, name: str, max_cells: int) -> None:
    """Mark a cell in the widget with this key, or remove its mark."""
    marked_names = list(st.session_state.get(key, ()))
    if name in marked_names:
        marked_names.remove(name)
    elif len(marked_names) < max_cells:
        marked_names.append(name)
    st.session_state[key] = marked_names


def make_widget_key(position: LessonPosition, locked_guess: object) -> str:
    """The key of the widget of a step's guess; another one when a locked guess is changed, so that it starts there."""
    return f"{position.key}_{'again' if locked_guess else 'guess'}"


def _draw_slider(guess: Guess, label: str, value: float | None, key: str) -> float:
    low, high = float(guess.low), float(guess.high)
    default = (low + high) / 2 if value is None else min(max(value, low), high)
    step = (high - low) / SLIDER_STEPS
    number_format = f"%g {guess.unit}".replace("%%", "%").strip() if guess.unit != "%" else "%g %%"
    return float(st.slider(label, low, high, default, step, number_format, key=key))


def guess_in_words(guess: Guess, facts: Sequence[Fact], values: Sequence[float]) -> str:
    """A guess as plain text."""
    if guess.kind == "number":
        return f"{values[0]:g} {guess.unit}".strip()
    if guess.kind == "curve":
        return ", ".join(
            f"{value:g} {guess.unit}".strip() + f" at {x:g}" for x, value in zip(guess.at, values, strict=False)
        )
    names = list_option_names(guess, facts)
    return "; ".join(names[int(index)] for index in values if 0 <= int(index) < len(names))


def truth_in_words(guess: Guess, facts: Sequence[Fact]) -> str:
    """The measured result with its interval if it has one; empty without facts."""
    if not facts:
        return ""
    if problem := next((fact.missing for fact in facts if fact.missing), ""):
        return f"not measured: {problem}"
    if guess.kind == "number":
        return facts[0].long_text
    if guess.kind == "choice":
        return f"{guess.options[find_right_option(guess, facts)]} ({max(facts, key=lambda fact: fact.value).long_text})"
    if guess.kind == "cells":
        return f"{sum(cell.holds for cell in facts[0].cells)} of {len(facts[0].cells)} cells"
    names = guess.options or tuple(f"{x:g}" for x in guess.at)
    pairs = list(zip(names, facts, strict=False))
    if guess.kind == "order":
        pairs.sort(key=lambda pair: -pair[1].value)
    return "; ".join(f"{name}: {fact.text}" for name, fact in pairs)


def find_right_option(guess: Guess, facts: Sequence[Fact]) -> int:
    """The index of the right option: of the interval that contains the fact if ``guess.at`` has bounds of intervals,
    else of the largest fact.
    """
    if guess.at:
        return sum(facts[0].displayed_value >= bound for bound in guess.at)
    return max(range(len(facts)), key=lambda index: facts[index].value)


def make_guess_chart(
    guess: Guess, values: Sequence[float], facts: Sequence[Fact], withheld: bool
) -> tuple[str, pd.DataFrame, dict[str, Any]]:
    """Key, table and options of the chart of a guess; none of them contains the truth if it is ``withheld``."""
    if guess.kind == "cells":
        return "guess_cells", *_make_cells_table(values, facts, withheld)
    facts = [] if withheld else facts
    make_table = {
        "number": _make_number_table,
        "choice": _make_choice_table,
        "order": _make_order_table,
        "curve": _make_curve_table,
    }[guess.kind]
    table, options = make_table(guess, values, facts)
    return f"guess_{guess.kind}", table, options


def _make_number_table(guess: Guess, values: Sequence[float], facts: Sequence[Fact]) -> TableAndOptions:
    import pandas as pd

    truth = _make_fact_row(facts[0]) if facts else {"value": NAN, "low": NAN, "high": NAN}
    rows = [{"label": TRUTH_LABEL, "kind": "truth", **truth}]
    if values:
        rows.insert(0, {"label": GUESS_LABEL, "kind": "guess", "value": values[0], "low": NAN, "high": NAN})
    return pd.DataFrame(rows), {"unit": guess.unit, "low": float(guess.low), "high": float(guess.high), "what": "Value"}


def _make_choice_table(guess: Guess, values: Sequence[float], facts: Sequence[Fact]) -> TableAndOptions:
    import pandas as pd

    right_index = find_right_option(guess, facts) if facts else -1
    rows = [
        {"option": name, "guess": bool(values) and index == int(values[0]), "truth": index == right_index}
        for index, name in enumerate(guess.options)
    ]
    return pd.DataFrame(rows), {"withheld": not facts}


def _make_order_table(guess: Guess, values: Sequence[float], facts: Sequence[Fact]) -> TableAndOptions:
    import pandas as pd

    guessed_order = [int(value) for value in values]
    guessed_order += [index for index in range(len(guess.options)) if index not in guessed_order]
    numbers = [fact.displayed_value for fact in facts] or [0.0] * len(guessed_order)
    true_order = sorted(range(len(guessed_order)), key=lambda index: -numbers[index])
    rows = [
        {
            "option": name,
            "guess": 1 + guessed_order.index(position),
            "truth": 1 + true_order.index(position),
            "value": numbers[position],
        }
        for position, name in enumerate(guess.options)
    ]
    return pd.DataFrame(rows), {"withheld": not facts, "unit": facts[0].unit if facts else ""}


def _make_curve_table(guess: Guess, values: Sequence[float], facts: Sequence[Fact]) -> TableAndOptions:
    import pandas as pd

    guessed_values = list(values) or [NAN] * len(guess.at)
    table = pd.DataFrame({"x": list(guess.at), "guess": guessed_values[: len(guess.at)]})
    if facts:
        truth_table = pd.DataFrame([_make_fact_row(fact) for fact in facts]).rename(columns={"value": "truth"})
        table = pd.concat([table, truth_table], axis=1)
    return table, {"unit": guess.unit, "low": float(guess.low), "high": float(guess.high), "axis": guess.axis}


def _make_cells_table(values: Sequence[float], facts: Sequence[Fact], withheld: bool) -> TableAndOptions:
    import pandas as pd

    marked_indices = {int(value) for value in values}
    cells = facts[0].cells if facts else ()
    names = enumerate(list_cell_names(facts[0]) if facts else ())
    rows = [{"row": row, "column": column, "guess": index in marked_indices} for index, (row, column) in names]
    table = pd.DataFrame(rows, columns=["row", "column", "guess"])
    if not withheld:
        table["truth"] = [float(cell.holds) for cell in cells]
    down, across = facts[0].cell_axes if facts else ("", "")
    return table, {"withheld": withheld, "across": across, "down": down}


def _make_fact_row(fact: Fact) -> dict[str, float]:
    low, high = (end * fact.scale if fact.has_interval else NAN for end in (fact.low, fact.high))
    return {"value": fact.displayed_value, "low": low, "high": high}

"""Guesses: the widgets that take a guess, and the table of the picture that compares it with the measured result.

A guess is a tuple of numbers: a number's value, the index of a choice, the indices of an order or of marked cells, or
the values of a curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.reading import expert_names
from app.views.lessons.learner import LessonPosition
from merging.teaching.fact import Fact
from merging.teaching.lesson import Guess
from viz.figure_text import clean_text

if TYPE_CHECKING:
    import pandas as pd

GUESSED, MEASURED = "Your guess", "Measured"
STEPS = 100  # stops of a slider
NO_NUMBER = float("nan")


def option_names(guess: Guess, facts: Sequence[Fact]) -> list[str]:
    """The options as plain text: those of the guess, or the cells of the map that the fact is about."""
    if guess.kind == "cells" and facts:
        return [clean_text(f"{row}, {column}", 160) for row, column in cell_names(facts[0])]
    return [clean_text(option, 160) for option in guess.options]


def cell_names(fact: Fact) -> list[tuple[str, str]]:
    """The (row, column) of every cell of a map, with experts named as on pages."""
    names = expert_names.expert_names(list(dict.fromkeys(cell.row for cell in fact.cells)))
    return [(names.get(cell.row, cell.row), cell.column) for cell in fact.cells]


def draw_guess_widget(
    position: LessonPosition, guess: Guess, facts: Sequence[Fact], locked: tuple[float, ...] | None
) -> tuple[float, ...] | None:
    """Draw the widget of a guess, starting at the ``locked`` one; returns the guess, or None if it is incomplete."""
    key = widget_key(position, locked)
    if guess.kind == "number":
        return (_slider(guess, "Your guess", locked[0] if locked else None, key),)
    if guess.kind == "curve":
        return tuple(
            _slider(guess, f"At {x:g}", locked[k] if locked else None, f"{key}_{k}") for k, x in enumerate(guess.at)
        )
    names = option_names(guess, facts)
    if guess.kind == "choice":
        chosen = st.radio("Your guess", names, int(locked[0]) if locked else None, key=key)
        return None if chosen is None else (float(names.index(chosen)),)
    most = len(names) if guess.kind == "order" else guess.most
    label = (
        "Choose all of them, the first one first" if guess.kind == "order" else f"Click up to {most} cells, or choose"
    )
    first = [names[int(k)] for k in locked or () if k < len(names)]
    listed = st.multiselect(label, names, first, key=key, max_selections=most)
    complete = len(listed) == most if guess.kind == "order" else bool(listed)
    return tuple(float(names.index(name)) for name in listed) if complete else None


def toggle_cell(key: str, name: str, most: int) -> None:
    """Mark a cell in the widget with this key, or remove its mark."""
    marked = list(st.session_state.get(key, ()))
    if name in marked:
        marked.remove(name)
    elif len(marked) < most:
        marked.append(name)
    st.session_state[key] = marked


def widget_key(position: LessonPosition, locked: object) -> str:
    """The key of the widget of a step's guess."""
    return f"{position.key}_{'again' if locked else 'guess'}"


def _slider(guess: Guess, label: str, value: float | None, key: str) -> float:
    low, high = float(guess.low), float(guess.high)
    first = (low + high) / 2 if value is None else min(max(value, low), high)
    step = (high - low) / STEPS
    number_format = f"%g {guess.unit}".replace("%%", "%").strip() if guess.unit != "%" else "%g %%"
    return float(st.slider(label, low, high, first, step, number_format, key=key))


def guess_in_words(guess: Guess, facts: Sequence[Fact], values: Sequence[float]) -> str:
    """A guess as plain text."""
    if guess.kind == "number":
        return f"{values[0]:g} {guess.unit}".strip()
    if guess.kind == "curve":
        return ", ".join(f"{v:g} {guess.unit}".strip() + f" at {x:g}" for x, v in zip(guess.at, values, strict=False))
    names = option_names(guess, facts)
    return "; ".join(names[int(k)] for k in values if 0 <= int(k) < len(names))


def truth_in_words(guess: Guess, facts: Sequence[Fact]) -> str:
    """The measured result with its interval if it has one; empty without facts."""
    if not facts:
        return ""
    if missing := next((fact.missing for fact in facts if fact.missing), ""):
        return f"not measured: {missing}"
    if guess.kind == "number":
        return facts[0].long_text
    if guess.kind == "choice":
        return f"{guess.options[right_option(guess, facts)]} ({max(facts, key=lambda fact: fact.value).long_text})"
    if guess.kind == "cells":
        return f"{sum(cell.holds for cell in facts[0].cells)} of {len(facts[0].cells)} cells"
    names = guess.options or tuple(f"{x:g}" for x in guess.at)
    pairs = list(zip(names, facts, strict=False))
    if guess.kind == "order":
        pairs.sort(key=lambda pair: -pair[1].value)
    return "; ".join(f"{name}: {fact.text}" for name, fact in pairs)


def right_option(guess: Guess, facts: Sequence[Fact]) -> int:
    """The index of the right option: the interval between the bounds ``at`` with the fact, else the largest fact."""
    if guess.at:
        return sum(facts[0].displayed_value >= bound for bound in guess.at)
    return max(range(len(facts)), key=lambda index: facts[index].value)


def guess_picture(
    guess: Guess, values: Sequence[float], facts: Sequence[Fact], withheld: bool
) -> tuple[str, pd.DataFrame, dict[str, Any]]:
    """Key, table and options of the chart of a guess; none of them contains the truth if it is ``withheld``."""
    if guess.kind == "cells":
        return "guess_cells", *_cells(values, facts, withheld)
    facts = [] if withheld else facts
    draw = {"number": _number, "choice": _choice, "order": _order, "curve": _curve}[guess.kind]
    table, options = draw(guess, values, facts)
    return f"guess_{guess.kind}", table, options


def _number(guess: Guess, values: Sequence[float], facts: Sequence[Fact]) -> tuple[pd.DataFrame, dict[str, Any]]:
    import pandas as pd

    truth = _row(facts[0]) if facts else {"value": NO_NUMBER, "low": NO_NUMBER, "high": NO_NUMBER}
    rows = [{"label": MEASURED, "kind": "truth", **truth}]
    if values:
        rows.insert(0, {"label": GUESSED, "kind": "guess", "value": values[0], "low": NO_NUMBER, "high": NO_NUMBER})
    return pd.DataFrame(rows), {"unit": guess.unit, "low": float(guess.low), "high": float(guess.high), "what": "Value"}


def _choice(guess: Guess, values: Sequence[float], facts: Sequence[Fact]) -> tuple[pd.DataFrame, dict[str, Any]]:
    import pandas as pd

    measured = right_option(guess, facts) if facts else -1
    rows = [
        {"option": name, "guess": bool(values) and index == int(values[0]), "truth": index == measured}
        for index, name in enumerate(guess.options)
    ]
    return pd.DataFrame(rows), {"withheld": not facts}


def _order(guess: Guess, values: Sequence[float], facts: Sequence[Fact]) -> tuple[pd.DataFrame, dict[str, Any]]:
    import pandas as pd

    order = [int(value) for value in values]
    order += [index for index in range(len(guess.options)) if index not in order]
    numbers = [fact.displayed_value for fact in facts] or [0.0] * len(order)
    best_first = sorted(range(len(order)), key=lambda index: -numbers[index])
    rows = [
        {"option": name, "guess": 1 + order.index(k), "truth": 1 + best_first.index(k), "value": numbers[k]}
        for k, name in enumerate(guess.options)
    ]
    return pd.DataFrame(rows), {"withheld": not facts, "unit": facts[0].unit if facts else ""}


def _curve(guess: Guess, values: Sequence[float], facts: Sequence[Fact]) -> tuple[pd.DataFrame, dict[str, Any]]:
    import pandas as pd

    guessed = list(values) or [NO_NUMBER] * len(guess.at)
    table = pd.DataFrame({"x": list(guess.at), "guess": guessed[: len(guess.at)]})
    if facts:
        measured = pd.DataFrame([_row(fact) for fact in facts]).rename(columns={"value": "truth"})
        table = pd.concat([table, measured], axis=1)
    return table, {"unit": guess.unit, "low": float(guess.low), "high": float(guess.high), "axis": guess.axis}


def _cells(values: Sequence[float], facts: Sequence[Fact], withheld: bool) -> tuple[pd.DataFrame, dict[str, Any]]:
    import pandas as pd

    chosen = {int(value) for value in values}
    cells = facts[0].cells if facts else ()
    names = enumerate(cell_names(facts[0]) if facts else ())
    rows = [{"row": row, "column": column, "guess": n in chosen} for n, (row, column) in names]
    table = pd.DataFrame(rows, columns=["row", "column", "guess"])
    if not withheld:
        table["truth"] = [float(cell.holds) for cell in cells]
    return table, {"withheld": withheld, "across": "Tensor, in forward order", "down": "Expert"}


def _row(fact: Fact) -> dict[str, float]:
    low, high = (end * fact.scale if fact.has_interval else NO_NUMBER for end in (fact.low, fact.high))
    return {"value": fact.displayed_value, "low": low, "high": high}

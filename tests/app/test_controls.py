"""Controls hold every value that a parameter can have, follow their widgets and enter the formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
from page_harness import SLOW
from parameter_kinds import KINDS
from streamlit.testing.v1 import AppTest

from app.page_text import value_in_words
from app.widgets import parameter_controls
from merging.methods import registry
from merging.methods.params import Bound


def valid_values(bound: Bound) -> list[Any]:
    """Values that a control must be able to hold, the edges among them."""
    if bound.kind == "flag":
        return [True, False]
    if bound.kind == "choice":
        return list(bound.choices)
    if bound.kind == "table":
        return [(), bound.normalize("b0-1/r.conv=0.5+t.*.bias/e.an expert=2")]
    low, high = (bound.slider or (bound.low, bound.high)) if bound.slider else (bound.low, bound.high)
    step = bound.step or 0.1
    low = low if math.isfinite(low) else -3.0
    high = high if math.isfinite(high) else 50.0
    found = [low + step if bound.open_low else low, high, bound.default]
    found += [low + 0.12345 * (high - low)] if bound.kind == "real" else [low + 1]
    if bound.kind == "real" and math.isinf(bound.high):
        found.append(3 * high)  # beyond what the slider offers, as a recipe may be
    if bound.optional:
        found.append(None)
    return [int(v) if bound.kind == "integer" and v is not None else v for v in found if bound.accepts(v)]


def script(key: str, values: dict) -> None:  # type: ignore[type-arg]  # it runs without this module
    """A page that draws the controls of one method."""
    import streamlit as st
    from parameter_kinds import KINDS

    from app.widgets import parameter_controls

    st.session_state["found"] = parameter_controls.draw_parameters(KINDS[key], values, "x")


def side_by_side(key: str, settings: list) -> None:  # type: ignore[type-arg]  # it runs without this module
    """Controls of one kind for each of many settings, as a page."""
    import streamlit as st
    from parameter_kinds import KINDS

    from app.widgets import parameter_controls

    found = [
        parameter_controls.draw_parameters(KINDS[key], values, f"x{number}") for number, values in enumerate(settings)
    ]
    st.session_state["found"] = found


@pytest.mark.parametrize("key", KINDS)
def test_controls_hold_every_valid_value(key: str) -> None:
    kind = KINDS[key]
    settings = [{}, *({name: value} for name, bound in kind.bounds().items() for value in valid_values(bound))]
    wanted = [kind.build(values) for values in settings]
    built = [each.values() for each in wanted]
    at = AppTest.from_function(side_by_side, args=(key, built), default_timeout=SLOW).run()
    assert not at.exception
    assert not at.error, at.error[0].value
    assert at.session_state["found"] == wanted


@pytest.mark.parametrize("key", KINDS)
def test_controls_follow_the_widgets(key: str) -> None:
    at = AppTest.from_function(script, args=(key, {}), default_timeout=SLOW).run()
    for slider in at.slider:
        at.slider(key=slider.key).set_value(slider.max).run()
        assert at.session_state["found"].values()[slider.key.removeprefix("x.")] == slider.max
    for toggle in [toggle for toggle in at.toggle if not toggle.key.endswith(".unset")]:
        before = toggle.value
        at.toggle(key=toggle.key).set_value(not before).run()
        assert at.session_state["found"].values()[toggle.key.removeprefix("x.")] is not before
    assert not at.exception


@pytest.mark.parametrize("key", KINDS)
def test_a_control_begins_with_its_value_in_the_browser(key: str) -> None:
    """A browser that gets the widget only from a second, shortened run sends what the widget itself begins with."""
    kind = KINDS[key]
    for name, bound in kind.bounds().items():
        value = valid_values(bound)[-1]
        shows = [bound.when] if bound.when else []  # the value of another parameter with which it is drawn
        at = AppTest.from_function(script, args=(key, dict([*shows, (name, value)])), default_timeout=SLOW).run()
        widgets = [*at.slider, *at.toggle, *at.selectbox, *at.number_input, *at.button_group]
        own = [widget for widget in widgets if widget.key == f"x.{name}"]
        assert len(own) == (bound.kind != "table" and value is not None)
        for widget in own:
            first = widget.proto.default
            if widget.type == "button_group":
                assert [widget.options[index] for index in first] == [value_in_words(value)]
            else:
                assert (first[0] if widget.type == "slider" else first) == _sent(widget.type, bound, value)


def _sent(kind: str, bound: Bound, value: Any) -> Any:
    return bound.choices.index(value) if kind == "selectbox" else value


def test_a_wrong_value_is_refused_under_its_control() -> None:
    at = AppTest.from_function(script, args=("every_kind", {"rate": 0.0}), default_timeout=SLOW).run()
    assert at.session_state["found"] is None
    assert "rate must be a number above 0" in at.error[0].value


def test_formulas_take_the_chosen_values() -> None:
    for method in registry.list_methods():
        params = method.params()
        filled, rest = parameter_controls.fill_formula(method.formula, params.bounds(), params.values())
        for name in params.stated_values():
            bound = params.bounds()[name]
            named = any(words.startswith(bound.label.lower()) for words in rest)
            assert named or parameter_controls.fill_formula(bound.symbol, {name: bound}, params.values())[0] in filled


@pytest.mark.parametrize(
    ("value", "says"), [(0.3, "{0.3}"), (1e300, "{10^{300}}"), (-1e-9, "{-10^{-9}}"), (2.5e-5, r"{2.5 \cdot 10^{-5}}")]
)
def test_formulas_write_exponents_as_powers(value: float, says: str) -> None:
    bound = Bound(kind="real", default=0.0, label="X", help="X.", symbol=r"\lambda")
    assert parameter_controls.fill_formula(r"\lambda x", {"x": bound}, {"x": value})[0].endswith(f"{says} x")

"""Methods: a card for every registered method, published figures next to ours, and the needs and costs of each."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.reading import glossary, page_data, recipes
from app.session import address, view_state
from app.session import explained_words as page_words
from app.views.methods import method_costs, method_facts, other_networks
from app.views.methods.method_card import draw_card
from app.widgets import page_parts
from merging.base.text import did_you_mean
from merging.methods import own_methods, registry
from merging.methods.method import Method, Needs
from merging.recipes.recipe import DEFAULT_MERGE

MAX_PROBLEMS = 10  # that are listed
PICKER_KEY = "methods_{}"  # the picker of a role's methods


def pick_methods(methods: Sequence[Method]) -> list[Method]:
    """The controls above the gallery; returns the matching methods."""
    roles = [role for role in method_facts.ROLES if any(method.role == role for method in methods)]
    needs = [str(need) for need in Needs if any(method.needs == need for method in methods)]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        words = st.text_input(
            "Find", type="search", live=True, key=address.SEARCH, bind=address.BIND, width=240, max_chars=80,
            placeholder="A word on the card",
        )  # fmt: skip
        role = st.segmented_control("Role", roles, format_func=str.capitalize, key=address.ROLE, bind=address.BIND)
        need = st.selectbox("Needs", needs, None, key=address.NEEDS, bind=address.BIND, width=240, placeholder="Any")
    return method_facts.find_methods(methods, role, need, words or "")


def draw_method_pickers(matching: Sequence[Method], chosen: str) -> None:
    """The methods by role; a click opens a card."""
    titles = {method.key: page_text.title_with_owner(method) for method in matching}
    for role, (title, meaning) in method_facts.ROLES.items():
        if keys := [method.key for method in matching if method.role == role]:
            widget = PICKER_KEY.format(role)
            st.session_state[widget] = chosen if chosen in keys else None
            st.pills(
                f"**{title}**: {meaning}", keys, format_func=titles.get, key=widget,
                on_change=view_state.pick_available_from, args=(address.METHOD, widget),
            )  # fmt: skip


def draw_problems() -> None:
    """Name the methods of others that could not be loaded, each with the reason."""
    if problems := own_methods.list_problems():
        lines = [f"- {page_text.safe_text(problem, 600)}" for problem in problems[:MAX_PROBLEMS]]
        lines += [f"- and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
        st.warning("\n".join(["Not loaded:", "", *lines]), icon=":material/extension_off:")


def draw_glossary() -> None:
    """The glossary, to which the words on other pages link."""
    st.header("Words", anchor="words")
    sought = st.text_input(
        "Find a word", type="search", live=True, key=address.WORD, bind=address.BIND, width=240, max_chars=80
    )
    if shown := glossary.find_words(sought or ""):
        st.markdown("\n\n".join(glossary.words_markdown(shown)))
    else:
        st.info("No word matches.")


page_parts.draw_heading(
    "Methods", "Everything that can be part of a recipe: what it does, its parameters, and its scores."
)
glossary_first = page_words.is_opened_for_word()
if glossary_first:
    draw_glossary()
registry.reload_methods()
methods = registry.list_methods()  # loads torch, after the heading is on the page
stored = page_data.stored_runs()
runs = page_data.scored_runs(stored)
keys = [method.key for method in methods]
chosen, missing = view_state.resolve_available(address.METHOD, keys, DEFAULT_MERGE)
if missing:
    hint = page_text.safe_text(did_you_mean(missing, keys))
    st.warning(f"There is no method named “{page_text.safe_text(missing, 40)}”.{hint}", icon=":material/link_off:")
draw_problems()
network = recipes.open_network_name()
matching = pick_methods(methods)
beyond_clip = other_networks.is_shown(network, stored)
if matching:
    draw_method_pickers(matching, chosen)
    shown = next(method for method in methods if method.key == chosen)
    draw_card(shown, matching, runs, stored)
    if beyond_clip:
        other_networks.draw_tables(shown, network)
    st.header("Needs and costs", anchor=False)
    st.markdown("The needs and the costs of the methods above. Click a column head to sort.")
    method_costs.draw_costs(matching, network)
else:
    st.info("No method matches. Remove a filter.")
if not glossary_first:
    draw_glossary()
page_parts.draw_link()

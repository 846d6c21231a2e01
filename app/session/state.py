"""What a session remembers. Only this module and ``painted`` use the keys of the session and of the address.

Keys in the address are an interface, because people share links. Those marked * belong to a widget bound to the
address; the others are written here, because a link should carry a run's id and not the label that a picker shows.

    run       the run on Masks, in focus on Drift, A   runs      the runs on Scores, Drift and Features, ids with
              on Compare; of whose experts Conflicts is            commas
    ratio*    prune ratio of the picture of masks      shared*   whether all experts share one mask
    group*    order of the tensors                     by*       how kept shares are split
    expert    the chosen expert, or its task           tensor    the chosen tensor
    image     the chosen image, as task:split:place    act*      what is done to the chosen layer
    reach*    whether to it, its block, or its kind    given*    the expert that it is given back to
    factor*   by what it is scaled                     help*     where putting back is asked to help
    relative* accuracies relative to the experts'      present*  larger type, for a projector
    chain     the edits and the merge being built      experts   names of the experts being merged, with commas
    method    the method on Methods                    role*     methods of this role only
    needs*    methods that need this only              find*     methods with these words only
    view*     what Drift shows                         kind*     tensors of this kind only
    about*    what Conflicts shows                     layer     the chosen tensor, in earlier links
    density*  share kept before signs are counted      cut*      rank cut of the joint spaces
    signs*    what a cell of sign agreement says       won*      what the picture of the election shows
    against*  the method tested against the others     best*     the score that makes a point of it the best
    token*    features of the class token, or mean     distance* how drift is measured
    task      the chosen expert, in earlier links      cell*     what a cell of layer-isolated drift says
    conflict* what a cell of removed conflicts says    overlap*  directions that both tasks of the case share
    energy*   of one task's inputs against the other's agreement* cosine of the case's task vectors
    compare*  what two experts are compared by         scope*    the whole model, or one layer
    first*    one expert of the chosen pair            second*   the other one
    direction* how the joint space joins matrices      drop*     prune ratio in the joint space
    sweep     the sweep on Sweeps, or "new"            point     the chosen point of it
    score*    what the map of a sweep shows            on        the benchmark, if not the server's
    subject*  the score that a point needs there       least*    how much of it, in percent
    look*     what Features shows                      map*      how its maps are drawn
    images*   the data set on Features                 classes*  of that data set only
    perplexity* of its t-SNE maps                      beside*   the expert that is shown beside the runs
    number*   how separability is measured             unit*     distances of features of unit length
    ranked*   each expert's entries, or all together   along*    what a cell of the joint space's energy says
    show*     what Scores shows                        merged*   the experts of its plug-in matrix and ablations
    front     the leading edit of the merges there     variant*  what the ablations show beside both
    intervals* accuracies there with their intervals   vectors*  how the case's task vectors are made
    word*     the explained words on Methods
    b         the run that Compare sets beside run     between*  what Compare shows of the two
    models    the user's set of models on Merge        shelf*    what Models & runs shows
    chosen    the runs selected there, with commas     outcome*  which of the two runs is right
    chart*    the chart of both runs on Compare        among*    whose images it counts
    guess*    what the first-order map shows
    draft     the secret token of the report, on all pages; links leave it out
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from app.session import pickers
from app.session.draft import Draft
from app.session.report_keeper import without_token
from merging.files.short_digest import resolved

RUN, RUNS, CHAIN, EXPERTS, RATIO, SHARED = "run", "runs", "chain", "experts", "ratio", "shared"
GROUP, BY, EXPERT, TENSOR, RELATIVE, PRESENT = "group", "by", "expert", "tensor", "relative", "present"
METHOD, ROLE, NEEDS, FIND, RANKED, ALONG = "method", "role", "needs", "find", "ranked", "along"
VIEW, KIND, TOKEN, DISTANCE, TASK, NUMBER, UNIT = "view", "kind", "token", "distance", "task", "number", "unit"
ABOUT, LAYER, DENSITY, CUT, SIGNS, WON = "about", "layer", "density", "cut", "signs", "won"
CELL, CONFLICT, OVERLAP, ENERGY, AGREEMENT, VECTORS = "cell", "conflict", "overlap", "energy", "agreement", "vectors"
AGAINST, COMPARE, SCOPE, FIRST, SECOND = "against", "compare", "scope", "first", "second"
SWEEP, POINT, SCORE, SUBJECT, LEAST, BEST = "sweep", "point", "score", "subject", "least", "best"
WORD = "word"
LOOK, MAP, IMAGES, CLASSES, PERPLEXITY, BESIDE = "look", "map", "images", "classes", "perplexity", "beside"
FIGURE = "figure"
ACT, REACH, GIVEN, FACTOR, HELP, GUESS = "act", "reach", "given", "factor", "help", "guess"
SHOW, MERGED, FRONT, VARIANT, INTERVALS = "show", "merged", "front", "variant", "intervals"
OTHER, BETWEEN, CHART, AMONG, OUTCOME = "b", "between", "chart", "among", "outcome"
MODELS, SHELF, CHOSEN, ON, DIRECTION, DROP = "models", "shelf", "chosen", "on", "direction", "drop"
BIND: Any = "query-params"

_CURRENT, _CURRENT_MANY, _DRAFT, _WATCHED = "_run", "_runs", "_draft", "_watched"
_PAGE, _ENTERED, _METHOD, _SWEEP, _POINT, _FRONT = "_page", "_entered", "_method", "_sweep", "_point", "_front"
_OTHER, _MODELS, _CHOSEN = "_other", "_models", "_chosen"
_FRESH = "_fresh"  # a run was picked on the page: the view starts from that run's own values


def present() -> bool:
    """Whether pages are shown on a projector."""
    return bool(st.session_state.get(PRESENT, False))


def enter(page: str) -> None:
    """Note which page is shown, by its path. The address counts when a page is entered, afterwards the session.

    Between two clicks the browser may still send the address that it had before the first.
    """
    st.session_state[_ENTERED] = st.session_state.get(_PAGE) != page
    st.session_state[_PAGE] = page


def linked(key: str) -> str:
    """What the link that was just opened says about ``key``."""
    return st.query_params.get(key, "") if st.session_state.get(_ENTERED, True) else ""


def write(key: str, value: str) -> None:
    """Put ``value`` into the address; an empty value removes ``key``."""
    if value and st.query_params.get(key) != value:
        st.query_params[key] = value
    elif not value and key in st.query_params:
        del st.query_params[key]


def _picked(key: str, remembered: str, available: Sequence[str], first: str) -> tuple[str, str]:
    """The value that the link or the session names, else ``first``; and the requested one if it is not available."""
    requested = resolved(linked(key) or st.session_state.get(remembered) or first, available)
    chosen = requested if requested in available else first
    st.session_state[remembered] = chosen
    write(key, chosen)
    return chosen, "" if requested in available else requested


@dataclass(frozen=True, slots=True)
class Picked:
    """The run that a page shows; ``missing`` is the id in the link if this machine lacks that run."""

    run_id: str | None
    missing: str | None = None
    fresh: bool = False


def picked_run(run_ids: Sequence[str], first: str) -> Picked:
    """The run that the link or the session names, else ``first``."""
    requested = resolved(linked(RUN) or st.session_state.get(_CURRENT, ""), run_ids)
    if requested and requested not in run_ids:
        st.session_state[_CURRENT] = requested
        return Picked(None, missing=requested)
    run_id = requested or first
    pick_run(run_id)
    return Picked(run_id, fresh=bool(st.session_state.pop(_FRESH, False)))


def pick_run(run_id: str) -> None:
    """Show this run from now on."""
    st.session_state[_CURRENT] = run_id
    write(RUN, run_id)


def pick_from(widget: str) -> None:
    """Callback of a run picker: show the picked run, with that run's own values."""
    st.session_state[_FRESH] = True
    pick_run(st.session_state[widget])


def picked_other(run_ids: Sequence[str]) -> tuple[str, str]:
    """The second run, which the link or the session names, and its id if this machine lacks it; else both are empty."""
    requested = resolved(linked(OTHER) or st.session_state.get(_OTHER, ""), run_ids)
    pick_other(requested)
    return (requested, "") if requested in run_ids else ("", requested)


def pick_other(run_id: str = "") -> None:
    """Set this run beside the first one from now on; the empty id sets none."""
    st.session_state[_OTHER] = run_id
    write(OTHER, run_id)


def pick_other_from(widget: str) -> None:
    """Callback of the picker of the second run."""
    pick_other(st.session_state[widget] or "")


def swap_runs(first: str, other: str) -> None:
    """Callback: each of two runs takes the other's place."""
    pick_run(other)
    pick_other(first)


def _many(key: str, name: str, available: Sequence[str], first: Sequence[str]) -> tuple[list[str], list[str]]:
    """The runs that the link or the session names, each once, and those of them that this machine lacks."""
    linked_ids = [resolved(written, available) for written in linked(key).split(",") if written]
    ids = list(dict.fromkeys(linked_ids or st.session_state.get(name, first)))
    st.session_state[name] = ids
    write(key, ",".join(ids))
    return [run_id for run_id in ids if run_id in available], [run_id for run_id in ids if run_id not in available]


def picked_runs(available: Sequence[str], default: Sequence[str]) -> tuple[list[str], list[str]]:
    """The runs to compare, and the ids in the link that this machine lacks."""
    return _many(RUNS, _CURRENT_MANY, available, default)


def pick_runs(run_ids: Sequence[str]) -> None:
    """Compare these runs from now on."""
    st.session_state[_CURRENT_MANY] = list(run_ids)
    write(RUNS, ",".join(run_ids))


def pick_runs_from(widget: str) -> None:
    """Callback of a picker of several runs."""
    pick_runs(st.session_state[widget])


def chosen_runs(available: Sequence[str]) -> tuple[list[str], list[str]]:
    """The runs that are selected for an action, and the ids in the link that this machine lacks."""
    return _many(CHOSEN, _CHOSEN, available, ())


def choose_runs(run_ids: Sequence[str]) -> None:
    """Select these runs for an action."""
    st.session_state[_CHOSEN] = list(run_ids)
    write(CHOSEN, ",".join(run_ids))


def picked_set(set_ids: Sequence[str]) -> tuple[str, str]:
    """The user's set of models that the link or the session names, "" for the bundled; and the one that is gone."""
    return _picked(MODELS, _MODELS, set_ids, "")


def pick_set(set_id: str) -> None:
    """Merge the models of this set from now on."""
    st.session_state[_MODELS] = set_id
    write(MODELS, set_id)


def picked_method(methods: Sequence[str], first: str) -> tuple[str, str]:
    """The method that the link or the session names, else ``first``; and the requested one if it does not exist."""
    return _picked(METHOD, _METHOD, methods, first)


def pick_method(key: str) -> None:
    """Show this method from now on."""
    st.session_state[_METHOD] = key
    write(METHOD, key)


def pick_method_from(widget: str) -> None:
    """Callback of a picker of methods; a second click on the same method changes nothing."""
    if key := st.session_state[widget]:
        pick_method(key)


def picked_sweep(sweep_ids: Sequence[str], first: str) -> tuple[str, str]:
    """The sweep that the link or the session names, else ``first``; and the requested one if this machine lacks it.

    The session keeps it, with the point that the link names or that was chosen in it before.
    """
    previous = st.session_state.get(_SWEEP)
    chosen, missing = _picked(SWEEP, _SWEEP, sweep_ids, first)
    pick_point(linked(POINT) or (st.session_state.get(_POINT, "") if chosen == previous else ""))
    return chosen, missing


def pick_sweep(sweep_id: str) -> None:
    """Show this sweep from now on, at its best point; the empty id shows none."""
    st.session_state[_SWEEP] = sweep_id
    write(SWEEP, sweep_id)
    pick_point("")


def pick_sweep_from(widget: str) -> None:
    """Callback of a picker of sweeps, whose key is one of ``pickers``."""
    if pickers.is_current(widget):
        pick_sweep(st.session_state[widget])


def picked_point(points: Sequence[str], best: str) -> str:
    """The point that was chosen in the sweep, else the best one."""
    requested = st.session_state.get(_POINT, "")
    return requested if requested in points else best


def pick_point(point: str) -> None:
    """Choose this point of the sweep; the empty one stands for the best."""
    st.session_state[_POINT] = point
    write(POINT, point)


def pick_point_from(widget: str) -> None:
    """Callback of a picker of points, whose key is one of ``pickers``."""
    if pickers.is_current(widget):
        pick_point(st.session_state[widget])


def picked_front(edits: Sequence[str], first: str) -> tuple[str, str]:
    """The leading edit that the link or the session names, else ``first``; and the requested one if it has no pair.

    An edit is written as in a chain.
    """
    return _picked(FRONT, _FRONT, edits, first)


def pick_front(edit: str) -> None:
    """Show the merges with this leading edit from now on."""
    st.session_state[_FRONT] = edit
    write(FRONT, edit)


def pick_front_from(widget: str) -> None:
    """Callback of the picker of the leading edit."""
    pick_front(st.session_state[widget])


def clear_link() -> None:
    """Forget the runs that a link named."""
    for key in (RUN, RUNS, OTHER, CHOSEN):
        write(key, "")
    for key in (_CURRENT, _CURRENT_MANY, _OTHER, _CHOSEN):
        st.session_state.pop(key, None)


def leave_benchmark() -> None:
    """Forget the chosen runs, sweep and models: another benchmark has its own."""
    for key in (_CURRENT, _CURRENT_MANY, _OTHER, _CHOSEN, _SWEEP, _POINT, _FRONT, _MODELS, _WATCHED):
        st.session_state.pop(key, None)


def draft() -> Draft | None:
    """The recipe being built, None if none was begun in this session."""
    kept = st.session_state.get(_DRAFT)
    return kept if isinstance(kept, Draft) else None


def keep_draft(new: Draft) -> None:
    """Keep this recipe as the one being built."""
    st.session_state[_DRAFT] = new


def linked_chain() -> tuple[str, list[str]] | None:
    """Chain and experts of the link that was just opened, None if it has no chain."""
    chain = linked(CHAIN)
    return (chain, [name for name in linked(EXPERTS).split(",") if name]) if chain else None


def link_chain(chain: str, experts: Sequence[str]) -> None:
    """Put the recipe being built into the link; ``experts`` is empty if all are merged."""
    write(CHAIN, chain)
    write(EXPERTS, ",".join(experts))


def place() -> str:
    """The path of the page and the query that restores this view, as in a link, without the server's address."""
    shown = without_token(st.query_params.to_dict())
    query = urlencode({key: value for key, value in shown.items() if key != PRESENT}, safe=",:;")
    page = st.session_state.get(_PAGE, "")
    return f"{page}?{query}" if query else page


def watch(run_id: str | None) -> None:
    """Show the progress of this run on the Merge page."""
    st.session_state[_WATCHED] = run_id


def watched() -> str | None:
    """The run whose progress the Merge page shows."""
    return st.session_state.get(_WATCHED)

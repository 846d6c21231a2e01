"""An edit in front of a merge: presets with it, and pairs of stored runs that differ by exactly that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import viz_tables

import viz
from merging.methods import registry
from merging.recipes.papers.ablations import LWPTV_FAMILY
from merging.recipes.papers.published_figures import B32, FIGURES, OUT_OF_DOMAIN_TASKS
from merging.recipes.presets import PLUGIN, PRESETS, explain_refusal, find_preset, list_bases, list_partners
from merging.recipes.recipe import Exemplars, Recipe
from merging.recipes.step import Step
from merging.study.runs import edit_pairs
from merging.study.runs.edit_pairs import LeadingEdit

Edits = list[tuple[str, dict[str, Any]]]


def run(edits: Edits, merge: str = "ties", params: dict[str, Any] | None = None, **said: Any) -> Any:
    """As much of a stored run as the search for pairs looks at."""
    experts = said.get("experts", ("a", "b"))
    recipe = Recipe.build(
        merge, params, edits, "p", {name: f"/files/{name}" for name in experts},
        exemplars=said.get("exemplars"), count_dead_params=said.get("counted", False),
    )  # fmt: skip
    number = len(recipe.text()) if "id" not in said else 0
    return SimpleNamespace(
        id=said.get("id", f"{recipe.chain_digest}{number}{said}"), title=recipe.text(), name=recipe.text(),
        recipe_yaml=recipe.to_yaml(),
        experts=experts, inputs={name: said.get("content", name) for name in ("p", *experts)},
        benchmark=said.get("benchmark", "images"), sizes={"dead": said.get("dead", 1)},
        tables=said.get("tables", ()), per_task=False,
    )  # fmt: skip


def found(*runs: Any) -> list[tuple[str, str]]:
    return [(pair.without_edit.title, pair.with_edit.title) for pair in edit_pairs.find_pairs(runs)]


PLUGGED = run([("lwptv", {})])


def test_one_edit_more_in_front_makes_a_pair() -> None:
    (pair,) = edit_pairs.find_pairs([PLUGGED, run([])])
    assert (pair.without_edit.title, pair.with_edit.title) == ("ties", "lwptv → ties")
    assert pair.leading_edit == LeadingEdit(Step("lwptv", registry.find_edit("lwptv").params()))
    longer = run([("lwptv", {}), ("magnitude", {})])
    assert found(run([("magnitude", {})]), longer) == [("magnitude → ties", "lwptv → magnitude → ties")]


def test_runs_that_count_unused_tensors_are_pairs_among_themselves() -> None:
    counting = [run(edits, counted=True, dead=7) for edits in ([], [("lwptv", {})])]
    assert found(*counting) == [("ties", "lwptv → ties")]
    assert found(counting[0], PLUGGED) == found(run([]), counting[1]) == []
    carrying_none = run([], counted=True, dead=0)  # counts nothing, so that it is the plain chain
    assert found(carrying_none, PLUGGED) == [("ties", "lwptv → ties")]


@pytest.mark.parametrize(
    "other",
    [
        run([], params={"density": 0.3}),
        run([], "task_arithmetic"),
        run([], experts=("a", "b", "c")),
        run([], experts=("a",)),
        run([], content="fine-tuned again"),
        run([], benchmark="other images"),
        run([("lwptv", {}), ("magnitude", {})]),  # at the back
        run([("dare", {}), ("magnitude", {}), ("lwptv", {})]),
        run([], counted=True),
    ],
    ids=lambda other: other.title,
)
def test_anything_else_makes_none(other: Any) -> None:
    assert found(PLUGGED, other) == []


def test_two_edits_more_are_no_pair() -> None:
    assert found(run([]), run([("lwptv", {}), ("magnitude", {})])) == []


def test_counting_unused_tensors_matters_only_where_there_are_some() -> None:
    plugged = run([("lwptv", {})], dead=0)
    assert found(plugged, run([], counted=True, dead=0))
    assert not found(run([("lwptv", {})], dead=7), run([], counted=True, dead=7))


def test_exemplars_are_the_same_draw_or_the_edits_own() -> None:
    lot, other = run([], "lot"), run([], "lot", exemplars={"seed": 1})
    assert found(lot, run([("lwptv", {})], "lot"))
    assert not found(other, run([("lwptv", {})], "lot"))
    few, many = (run([("cat", {})], exemplars={"per_task": number}) for number in (2, 64))
    pairs = edit_pairs.find_pairs([run([]), few, many, lot, run([("cat", {})], "lot")])
    assert [pair.leading_edit.exemplars for pair in pairs] == [Exemplars(per_task=2), Exemplars(per_task=64), None]
    fronts = edit_pairs.list_leading_edits(pairs)
    assert [front.exemplars for front in fronts] == [Exemplars(per_task=2), Exemplars(per_task=64)]
    assert [sum(pair.belongs_to(front) for pair in pairs) for front in fronts] == [2, 2]


def test_the_first_run_of_a_chain_counts() -> None:
    own, stored = run([], id="own"), run([], id="stored")
    assert [pair.without_edit.id for pair in edit_pairs.find_pairs([own, stored, PLUGGED])] == ["own"]


def test_a_run_of_another_version_is_left_out() -> None:
    odd = run([], id="odd")
    odd.recipe_yaml = "merge: no_such_merge"
    assert found(odd, PLUGGED) == []
    assert edit_pairs.read_recipe(odd) is None


def test_the_matrix_holds_every_base_and_says_what_is_missing() -> None:
    model = find_preset("ties").recipe("p", {"a": "/files/a", "b": "/files/b"})
    edits = [(step.key, step.params.values()) for step in model.edits]
    plain = run(edits, model.merge.key, model.merge.params.values(), counted=True)
    rest = run([("magnitude", {"prune_ratio": 0.1}), ("lines", {})])
    both = [rest, run([("lwptv", {}), ("magnitude", {"prune_ratio": 0.1}), ("lines", {})])]
    front = LeadingEdit(Step("lwptv", registry.find_edit("lwptv").params()))
    entries = edit_pairs.build_plugin_matrix([plain, *both], front, "LwPTV")
    titles = [entry.title for entry in entries]
    assert titles == [*(base.name_in_lists() for base in list_bases("lwptv")), rest.title]
    ties, last = entries[titles.index("TIES (sum, λ 0.3)")], entries[-1]
    assert ties.plain is plain and ties.plugged is None
    assert [recipe.text() for recipe in ties.missing] == ["lwptv → ties"]
    assert [recipe.title for recipe in ties.missing] == ["Ties w/ LwPTV"]
    assert (last.plain, last.plugged, last.missing) == (*both, ())
    assert all(len(entry.missing) == 2 for entry in entries[:-1] if entry is not ties)


def test_a_merge_that_refuses_the_edit_says_why() -> None:
    front = LeadingEdit(Step("dare", registry.find_edit("dare").params()))
    entries = {entry.title: entry for entry in edit_pairs.build_plugin_matrix([PLUGGED], front, "DARE")}
    stock = entries["Model Stock, across tasks"]
    assert "are random after" in stock.refused and not stock.missing
    assert "DARE-TIES (mean, λ 1)" not in entries  # it holds the edit already


def test_an_edits_own_exemplars_are_those_of_its_pairs() -> None:
    front = LeadingEdit(Step("cat", registry.find_edit("cat").params()), Exemplars(per_task=2))
    entries = {entry.title: entry for entry in edit_pairs.build_plugin_matrix([PLUGGED], front, "CAT")}
    assert [recipe.exemplars for recipe in entries["TIES (sum, λ 0.3)"].missing] == [None, Exemplars(per_task=2)]
    assert [recipe.exemplars for recipe in entries["LOT Merging"].missing] == [Exemplars(), Exemplars()]


def test_saliency_is_looked_for_where_the_first_edit_is_the_same() -> None:
    bare, holder = run([("lwptv", {})], "lot"), run([("lwptv", {})], tables=("saliency",))
    assert edit_pairs.find_same_saliency(bare, [run([]), holder]) is holder
    others = (
        run([("lwptv", {"prune_ratio": 0.5})], tables=("saliency",)),
        run([("magnitude", {}), ("lwptv", {})], tables=("saliency",)),
        run([("lwptv", {})], content="others", tables=("saliency",)),
        run([("lwptv", {})]),
    )
    assert edit_pairs.find_same_saliency(bare, others) is None
    assert edit_pairs.find_same_saliency(run([]), [holder]) is None


# Presets


def test_partners_are_new_and_make_sense() -> None:
    known, made = {found.key for found in PRESETS}, list_partners()
    assert len({found.key for found in made} | known) == len(made) + len(known)
    assert len({found.title for found in (*made, *PRESETS)}) == len(made) + len(PRESETS)
    for found in made:
        recipe = found.recipe("p", {"a": "x"})
        assert recipe.edits[0].key == PLUGIN[0] and recipe.text().count(PLUGIN[0]) == 1
        assert found.title.endswith("w/ LwPTV") and found.source.startswith("ours")


def test_every_merge_that_has_a_preset_has_a_partner() -> None:
    plugged = {found.merge for found in (*list_partners(), *PRESETS) if found.edits[:1] == (PLUGIN,)}
    refused = {found.merge for found in list_bases(PLUGIN[0]) if explain_refusal(found.with_edit())}
    masks = {"localize_and_stitch"}  # masks of its own; the papers put none in front
    assert {found.merge for found in PRESETS} == plugged | refused | masks


def test_a_published_preset_with_the_edit_is_what_the_rule_makes() -> None:
    for key in ("task_arithmetic", "ties", "pcb"):
        made, known = find_preset(key).with_edit(), find_preset(f"{key}_{PLUGIN[0]}")
        assert made.key == known.key
        assert made.recipe("p", {}).chain_digest == known.recipe("p", {}).chain_digest


def test_the_family_is_made_of_presets_on_one_merge() -> None:
    recipes = {key: find_preset(key).recipe("p", {"a": "x"}) for key in LWPTV_FAMILY.keys}
    assert len(recipes) == len(LWPTV_FAMILY.keys)
    assert {LWPTV_FAMILY.group(key) for key in recipes} == {"Without it", "The whole method", *LWPTV_FAMILY.groups}
    whole, base = recipes[LWPTV_FAMILY.whole], recipes[LWPTV_FAMILY.base]
    assert whole.edits[1:] == base.edits and whole.merge == base.merge


def test_published_accuracies_out_of_domain_average_to_the_printed_mean() -> None:
    several = [figure for figure in FIGURES if figure.printed.outside and figure.model == B32]
    assert len(several) >= len(LWPTV_FAMILY.keys)
    for figure in several:
        assert len(figure.printed.outside) == len(OUT_OF_DOMAIN_TASKS)
        mean = sum(figure.printed.outside) / len(OUT_OF_DOMAIN_TASKS)
        assert mean == pytest.approx(figure.printed.out_of_domain, abs=0.07), figure.name


# The picture


def arrows(fig: Any) -> list[Any]:
    return [note for note in fig.layout.annotations if note.name == "arrow"]


def test_every_arrow_leads_from_without_to_with() -> None:
    table = viz_tables.plugin_arrows(4)
    ends = table.set_index(["pair", "kind"])[["in_domain", "out_of_domain"]]
    drawn = arrows(viz.draw("plugin_arrows", table))
    assert [(a.ax, a.ay) for a in drawn] == [tuple(row) for row in ends.xs("plain", level="kind").to_numpy()]
    assert [(a.x, a.y) for a in drawn] == [tuple(row) for row in ends.xs("plugged", level="kind").to_numpy()]


def test_marks_tell_whether_the_h_score_falls() -> None:
    table = viz_tables.plugin_arrows(6)
    table.loc[table.index[-1], "h_score"] = 0.1
    fig = viz.draw("plugin_arrows", table)
    scores = table.set_index(["pair", "kind"])["h_score"].unstack()[["plain", "plugged"]].dropna()
    falls = int((scores["plugged"] < scores["plain"]).sum())
    assert 0 < falls < 6
    sizes = {trace.name: len(trace.x) for trace in fig.data if trace.mode == "markers"}
    assert sizes["With it, H-score lower"] == falls and sizes["Without the edit"] == 6


def test_a_pair_with_one_end_is_left_out_and_said() -> None:
    table = viz_tables.plugin_arrows(3)
    fig = viz.draw("plugin_arrows", table[(table["pair"] != "Digits") | (table["kind"] == "plain")])
    assert len(arrows(fig)) == 2
    assert any("Left out" in (note.text or "") and "Digits" in note.text for note in fig.layout.annotations)


def test_an_arrow_from_far_outside_comes_in_at_the_edge_and_says_where_from() -> None:
    table = viz_tables.plugin_arrows(3)
    near = viz.draw("plugin_arrows", table)
    table.loc[(table["pair"] == "Digits") & (table["kind"] == "plain"), ["out_of_domain", "out_low"]] = 0.05
    fig = viz.draw("plugin_arrows", table)
    low = fig.layout.yaxis.range[0]
    assert low > 0.3 and low == pytest.approx(near.layout.yaxis.range[0], abs=0.05)
    coming = min(arrows(fig), key=lambda arrow: arrow.ay)
    assert coming.ay == pytest.approx(low)
    assert any(
        "Digits starts outside" in (note.text or "") and "5.0% out" in note.text for note in fig.layout.annotations
    )

"""The files of what papers state and print: their rows agree with each other, with the registry and with arithmetic."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from merging.base.errors import RecipeError
from merging.base.files.plain_yaml import read_plain_yaml, write_yaml
from merging.methods import registry
from merging.recipes.papers import ablations, combinations, other_networks, published_figures
from merging.recipes.papers.claims import CURVES
from merging.recipes.papers.combinations import PRESETS_FILE, SECTIONS, read_combinations, read_sections
from merging.recipes.papers.published_figures import (
    COLUMNS,
    EXPERTS,
    FIGURES,
    IN_DOMAIN_TASKS,
    OUT_OF_DOMAIN_TASKS,
    PUBLISHED_FILE,
    read_figures,
)
from merging.recipes.presets import NETWORK_PRESETS, PRESETS, Preset, find_preset

OURS = "ours: "  # how the source of a combination begins that no paper reports
NOT_REGISTERED: set[str] = set()  # methods of which papers print figures, and which are not implemented


# Presets


def test_the_file_of_presets_is_plain_yaml() -> None:
    """The reader of untrusted YAML refuses keys that are written twice; the fast one lets the last win."""
    assert read_plain_yaml(PRESETS_FILE.read_text("utf-8")) == read_sections()


def test_keys_and_titles_of_presets_are_unique() -> None:
    every = (*PRESETS, *NETWORK_PRESETS)
    for names in ([each.key for each in every], [each.title for each in every]):
        assert len(names) == len(set(names)) > 30


@pytest.mark.parametrize("each", (*PRESETS, *NETWORK_PRESETS), ids=lambda each: each.key)
def test_a_preset_states_methods_and_values_that_exist(each: Preset) -> None:
    steps = [(registry.find_edit(key), values) for key, values in each.edits]
    steps += [(registry.find_adapt(each.adapt[0]), each.adapt[1])] if each.adapt else []
    for method, values in [*steps, (registry.find_merge(each.merge), each.params | each.large)]:
        built = method.params.build(values).values()
        assert {name: type(value) for name, value in values.items()} == {name: type(built[name]) for name in values}
    assert set(each.large) <= set(each.params)
    for large in (False, True):
        drawn = each.recipe("p", {"a": "x"}, large=large).exemplars
        assert not each.exemplars or (drawn and drawn.values() == drawn.values() | each.exemplars)


def test_every_source_names_a_paper_and_every_paper_is_named() -> None:
    rows = [row for section in ("combinations", "variants", "learned", "networks") for row in read_sections()[section]]
    assert [row["key"] for row in rows if "{" not in row["source"]] == [
        row["key"] for row in rows if row["source"].startswith(OURS)
    ]
    for name in read_sections()["papers"]:
        assert any(f"{{{name}}}" in row["source"] for row in rows), name
    assert not any("{" in each.source for each in PRESETS)
    assert find_preset("ties").source == "Yang et al., ICLR 2024; Zhang et al. (LwPTV), NeurIPS 2025, Table 2"


def changed_presets(folder: Path, section: str, **fields: Any) -> Path:
    """A copy of the file of presets with one row of a section, where ``fields`` are changed; None removes one."""
    sections: dict[str, Any] = read_plain_yaml(PRESETS_FILE.read_text("utf-8"))
    is_family = section == "families"
    row = sections[section]["lwptv" if is_family else 0] | fields
    kept = {name: value for name, value in row.items() if value is not None}
    path = folder / "presets.yaml"
    path.write_text(write_yaml(sections | {section: {"lwptv": kept} if is_family else [kept]}), "utf-8")
    return path


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"title": None}, "field title: text is needed; got None"),
        ({"title": 3}, "field title: text is needed; got 3"),
        ({"merge": {"ties": {}, "lot": {}}}, "field merge: a step is"),
        ({"merge": None}, "field merge: a step is"),
        ({"edits": "cat"}, "field edits: a list"),
        ({"edits": [3]}, "field edits: a step is"),
        ({"large": [0.4]}, "field large: a mapping"),
        ({"exemplars": 2}, "field exemplars: a mapping"),
        ({"note": 1.5}, "field note: text is needed"),
        (
            {"source": "{LwPTW}, Table 2"},
            "field source: there is no paper 'LwPTW' in the section papers. Did you mean 'LwPTV'?",
        ),
        ({"titel": "x"}, "unknown field 'titel'. Did you mean 'title'?"),
    ],
)
def test_an_odd_row_of_presets_is_named(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    path = changed_presets(tmp_path, "variants", **fields)
    with pytest.raises(RecipeError) as error:
        read_combinations("variants", path)
    where = "presets.yaml, variants, row 1 (task_arithmetic_lwptv_own_masks): "
    assert str(error.value).startswith(where + problem)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"base": "tise"}, "field base: there is no combination 'tise'. Did you mean 'ties'?"),
        ({"whole": None}, "field whole: text is needed"),
        ({"groups": {"Part changed": "ties"}}, "field groups: a mapping of titles to lists"),
        ({"groups": {"Part changed": ["no such"]}}, "field groups: there is no combination 'no such'"),
        ({"members": []}, "unknown field 'members'"),
    ],
)
def test_an_odd_family_is_named(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    path = changed_presets(tmp_path, "families", **fields)
    with pytest.raises(RecipeError) as error:
        ablations.read_families([each.key for each in PRESETS], path)
    assert str(error.value).startswith(f"presets.yaml, families, row lwptv: {problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("papers: [", "presets.yaml is not valid YAML"),
        ("- papers", f"presets.yaml must have exactly the sections {', '.join(SECTIONS)}"),
        (
            "papers: {}\ncombinations: {}\nvariants: []\nlearned: []\nnetworks: []\nfamilies: {}",
            "the section combinations is not a list",
        ),
        (
            "papers: {}\ncombinations: []\nvariants: [ties]\nlearned: []\nnetworks: []\nfamilies: {}",
            "presets.yaml, variants, row 1: a row is a mapping with the fields key, title",
        ),
    ],
)
def test_an_odd_file_of_presets_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "presets.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(RecipeError, match=problem):
        read_combinations("variants", path)


# Published figures


def test_figures_name_methods_that_are_registered() -> None:
    keys = {key for figure in FIGURES for key, _ in figure.chain + figure.adapt}
    assert keys - {method.key for method in registry.list_methods()} == NOT_REGISTERED


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure.name}, {figure.model}, {figure.source}")
def test_values_of_a_figure_are_of_the_types_that_its_methods_take(figure: published_figures.Figure) -> None:
    places = ["edit"] * (len(figure.chain) - 1) + ["merge"] + ["adapt"] * len(figure.adapt)
    for role, (key, stated) in zip(places, figure.chain + figure.adapt, strict=True):
        if key not in NOT_REGISTERED:
            method = registry.find_method(role, key)
            built = method.params.build(stated).values()
            assert {name: type(value) for name, value in stated.items()} == {name: type(built[name]) for name in stated}


def test_a_figure_with_an_adapt_is_of_no_chain_without_it() -> None:
    surgery = next(figure for figure in FIGURES if figure.name == "Surgery Merging")
    plain = next(
        figure for figure in FIGURES if figure.name == "Task Arithmetic" and figure.model == published_figures.B32
    )
    steps, above = [("task_arithmetic", {"scaling": 0.3})], [("surgery", {"rank": 16})]
    assert (surgery.chain, surgery.adapt) == ((("task_arithmetic", {"scaling": 0.3}),), (("surgery", {}),))
    assert surgery.matches_chain(steps, above) and plain.matches_chain(steps)
    assert not surgery.matches_chain(steps) and not plain.matches_chain(steps, above)
    assert surgery in published_figures.list_figures_with_method("adapt", "surgery")
    assert plain not in published_figures.list_figures_with_method("adapt", "surgery")


def test_presets_that_learn_do_so_on_images_that_are_not_scored_unless_told() -> None:
    experts = {"a": "x"}
    learning = [each for each in PRESETS if each.recipe("p", experts).test_data]
    assert {"lw_adamerging", "surgery", "wemoe", "lw_adamerging_quick"} < {each.key for each in learning}
    for each in learning:
        held_out, papers = each.recipe("p", experts), each.recipe("p", experts, test_data={"split": "reporting"})
        assert held_out.test_data and held_out.test_data.split == "choosing"
        assert papers.test_data and papers.test_data.split == "reporting" and papers.adapt == held_out.adapt


def test_averages_of_experts_are_those_of_their_accuracies() -> None:
    assert len(EXPERTS) == sum(map(len, (published_figures.REFERENCES["individual"], read_figures()["experts"])))
    for printed in EXPERTS.values():
        if printed.tasks:
            assert sum(printed.tasks) / len(IN_DOMAIN_TASKS) == pytest.approx(printed.in_domain, abs=0.09)


def test_every_source_of_figures_is_used() -> None:
    used = {figure.source.split(",")[0] for figure in FIGURES} | {curve.paper for curve in CURVES}
    assert used == set(published_figures.SOURCES)
    adapters = {"Hugging Face, LoRA"}  # of which no merges are printed
    assert {figure.experts for figure in FIGURES} == {experts for experts, _ in EXPERTS} - adapters


def changed_figures(folder: Path, **fields: str) -> Path:
    """A file with one row of the published figures, LOT's with 64 exemplars, where ``fields`` are changed."""
    with PUBLISHED_FILE.open(encoding="utf-8", newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["name"] == "LOT Merging")
    path = folder / "published.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerows([COLUMNS, (row | fields).values()])
    return path


def test_a_row_is_read_as_it_is_written(tmp_path: Path) -> None:
    chain = "lwptv:prune_ratio=0.7,shared=false,score=mean_abs;wudi:steps=300"
    (figure,) = read_figures(changed_figures(tmp_path, chain=chain, **dict.fromkeys(OUT_OF_DOMAIN_TASKS, "50")))[
        "merge"
    ]
    assert figure.chain == (
        ("lwptv", {"prune_ratio": 0.7, "shared": False, "score": "mean_abs"}),
        ("wudi", {"steps": 300}),
    )
    assert (figure.source, figure.exemplars, figure.uses_unstated_values) == ("LOT, Tables 1 and 2", 64, False)
    assert figure.printed.tasks[:2] == (67.7, 67.5) and figure.printed.outside == (50.0,) * len(OUT_OF_DOMAIN_TASKS)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kind": "merged"}, "field kind: 'merged' is not one of 'merge', 'pretrained'"),
        ({"paper": "LOTS"}, "field paper: 'LOTS' is not one of 'LwPTV', 'LOT'"),
        ({"model": "ViT-B/8"}, "field model: 'ViT-B/8' is not one of 'ViT-B/32', 'ViT-B/16', 'ViT-L/14', 'ViT-H/14'"),
        ({"unstated": "no"}, "field unstated: 'no' is not one of '', 'yes'"),
        ({"name": ""}, "field name: it is empty"),
        ({"experts": ""}, "field experts: it is empty"),
        ({"chain": ""}, "field chain: merges have a chain"),
        ({"kind": "pretrained"}, "field chain: merges have a chain"),
        ({"chain": "lot:1.2"}, "field chain: a step is"),
        ({"chain": ":scaling=1.2"}, "field chain: a step is"),
        ({"exemplars": "few"}, "field exemplars: 'few' is not a whole number"),
        ({"in_domain": ""}, "field in_domain: it is empty"),
        ({"h_score": "0,5"}, "field h_score: '0,5' is not a number from 0 to 100"),
        ({"normalized": "nan"}, "field normalized: 'nan' is not a number"),
        ({"Cars": "675"}, "field Cars: '675' is not a number from 0 to 100"),
        ({"Cars": ""}, "field Cars: it is empty, and SUN397 is not"),
        ({"STL10": "50.0"}, "field CIFAR10: it is empty, and STL10 is not"),
        ({"computed": "in_domain h_score"}, "field computed: 'h_score' is not an average that the row has"),
        ({"seconds": "-1"}, "field seconds: '-1' is not a number of at least 0."),
        ({"computed": "Cars"}, "field computed: 'Cars' is not an average that the row has"),
        ({"ImageNet 2": "50.0"}, "38 cells instead of 37"),
    ],
)
def test_an_odd_row_of_figures_is_named(tmp_path: Path, fields: dict[str, str], problem: str) -> None:
    with pytest.raises(RecipeError) as error:
        read_figures(changed_figures(tmp_path, **fields))
    assert str(error.value).startswith(f"published.csv, line 2: {problem}")


def test_other_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    path.write_text("name,model\nLOT,ViT-B/32\n", "utf-8")
    with pytest.raises(RecipeError, match=r"published\.csv, line 1: the columns must be kind, paper"):
        read_figures(path)


@pytest.mark.parametrize(
    "module", [combinations, ablations, published_figures, other_networks], ids=lambda module: module.__name__
)
def test_reading_the_files_loads_nothing_slow(module: Any) -> None:
    code = f"import sys, {module.__name__}; sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

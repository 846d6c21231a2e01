"""What papers print beyond CLIP: the file agrees with the registry and itself, and the presets with the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from merging.base.errors import RecipeError
from merging.methods import registry
from merging.methods.params import Params
from merging.models.network_facts import all_facts
from merging.recipes.papers.other_networks import (
    BEYOND_FILE,
    COLUMNS,
    MEASURES,
    MODELS,
    OTHER_NETWORK_FIGURES,
    read_beyond_figures,
)
from merging.recipes.presets import NETWORK_PRESETS, PRESETS, list_offered


def of(model: str, name: str) -> dict[str, float]:
    (figure,) = [figure for figure in OTHER_NETWORK_FIGURES if (figure.model, figure.name) == (model, name)]
    return dict(figure.values)


def test_values_are_those_of_the_papers() -> None:
    assert of("T5-base", "TIES") == {"average": 71.8, "tuned": 73.7}
    assert of("Llama-3.1-8B LoRA", "DRM-V") == {"average": 69.1, "tuned": 74.3}
    assert of("T5-large-LM-adapt", "PCB w/ LwPTV") == {"in_domain": 75.8, "out_of_domain": 49.9, "h_score": 60.2}
    lot = of("BLIP-VQA", "LOT")
    assert lot == {"COCO": 0.91, "Flickr30k": 0.54, "TextCaps": 0.44, "OKVQA": 38.35, "TextVQA": 20.82,
                   "ScienceQA": 48.24}  # fmt: skip
    assert not {"average", "in_domain"} & set(lot)  # CIDEr and accuracy have no mean
    assert [sum(figure.model == model for figure in OTHER_NETWORK_FIGURES) for model in MODELS] == [7, 7, 7, 7, 9, 8]


def test_printed_h_scores_are_those_of_their_parts() -> None:
    for figure in OTHER_NETWORK_FIGURES:
        if "h_score" in figure.values:
            one, other = figure.values["in_domain"], figure.values["out_of_domain"]
            assert figure.values["h_score"] == pytest.approx(2 * one * other / (one + other), abs=0.11), figure.name


def test_chains_state_methods_and_values_that_exist() -> None:
    for figure in OTHER_NETWORK_FIGURES:
        for place, (key, values) in enumerate(figure.chain, 1):
            method = registry.find_merge(key) if place == len(figure.chain) else registry.find_edit(key)
            params: type[Params] = method.params
            assert params.build(values).values().items() >= values.items()


def test_models_and_presets_are_of_networks_that_the_facts_know() -> None:
    titles = {facts.title for facts in all_facts()}
    assert {model.network for model in MODELS.values()} | {each.network for each in NETWORK_PRESETS} <= titles


def test_a_network_is_offered_its_own_values_first_and_clip_its_own_only() -> None:
    assert list_offered("") == PRESETS
    first = list_offered("T5")
    assert [each.title for each in first[:2]] == ["T5 · Task Arithmetic", "T5 · TIES"]
    ties = first[1].recipe("p", {"a": "x"})
    assert ties.merge.params.values().items() >= {"density": 0.2, "aggregation": "mean", "scaling": 1.0}.items()
    assert not ties.count_dead_params
    assert not any(each.adapt or each.recipe("p", {"a": "x"}).needs for each in first)
    assert list_offered("GPT-2")[0] in PRESETS


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("DRM,Table 1,TIES,T5-base", "DRM,Table 1,TIES,T5-bas", "field model: 'T5-bas' is not known"),
        (",0.91,0.54,", ",91,0.54,", "field COCO: '91' is not a number from 0 to 10"),
        ("BLIP-VQA,lot", "BLIP-VQA,", "field chain: merges have a chain"),
        (",".join(COLUMNS), ",".join(reversed(COLUMNS)), "the columns must be kind, paper"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(tmp_path: Path, before: str, after: str, problem: str) -> None:
    text = BEYOND_FILE.read_text(encoding="utf-8")
    assert before in text and set(MEASURES) < set(COLUMNS)
    path = tmp_path / "beyond.csv"
    path.write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"beyond\.csv, line \d+: ") as error:
        read_beyond_figures(path)
    assert problem in str(error.value)

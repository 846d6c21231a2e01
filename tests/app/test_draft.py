"""What users take away of a draft: its link, its command line and its recipe."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
from safetensors.torch import save_file

from app.session.draft import Draft, command_lines, parse_chain
from merging.base.errors import MergingError
from merging.recipes.presets import PRESETS
from merging.recipes.recipe import Recipe


def test_a_chain_reads_back_from_a_link() -> None:
    for preset in PRESETS:
        draft = Draft.from_recipe(preset.recipe("p", {"a": "x"}))
        again = parse_chain(draft.chain(), "p", ["a"])
        again.title, again.title_of_chain = draft.title, draft.title_of_chain
        assert again.recipe({"a": "x"}) == preset.recipe("p", {"a": "x"})


@pytest.mark.parametrize("value", [0.123456789, 0.1 + 0.2, 1e-7, 999.0000000001, 2.0])
def test_links_and_commands_keep_every_digit(value: float) -> None:
    recipe = Recipe.build("task_arithmetic", {"scaling": value}, experts={"a": "x"})
    draft = parse_chain(Draft.from_recipe(recipe).chain(), recipe.pretrained, ["a"])
    assert draft.recipe({"a": "x"}).merge == recipe.merge
    written = re.search(r"scaling=([^ ]+)", command_lines(recipe))
    assert written
    assert float(written[1]) == value


def test_a_link_says_how_exemplars_are_drawn() -> None:
    draft = parse_chain("exemplars:per_task=9;lwptv;lot", "p", ["a"])
    recipe = draft.recipe({"a": "x"})
    assert recipe.exemplars is not None
    assert recipe.exemplars.per_task == 9
    assert draft.chain() == "exemplars:per_task=9;lwptv;lot"
    draft.merge = parse_chain("ties", "p", []).merge
    assert draft.chain() == "lwptv;ties"  # nothing looks at them any more


def test_a_link_and_a_command_name_an_adapt_and_the_images_to_learn_from() -> None:
    chain = "test_data:split=reporting,per_task=9;lwptv;adamerging;surgery:rank=8"
    draft = parse_chain(chain, "p", ["a"])
    recipe = draft.recipe({"a": "x"})
    assert recipe.adapt is not None and recipe.adapt.key == "surgery"
    assert recipe.test_data is not None and recipe.test_data.per_task == 9
    assert draft.chain() == Draft.from_recipe(recipe).chain() == chain
    assert " --adapt surgery:rank=8 --test-data reporting:per_task=9 " in command_lines(recipe)
    assert command_lines(recipe).endswith("--out merged")
    draft.adapt, draft.merge = None, parse_chain("ties", "p", []).merge
    assert draft.chain() == "lwptv;ties"  # nothing learns any more


def test_a_link_names_the_activation() -> None:
    for front in ("activation:gelu;", "count_dead_params;activation:gelu;exemplars:seed=2;"):
        draft = parse_chain(f"{front}lot", "p", ["a"])
        recipe = draft.recipe({"a": "x"})
        assert recipe.activation == "gelu" and draft.chain() == Draft.from_recipe(recipe).chain() == f"{front}lot"
    assert " --activation gelu --merge ties " in command_lines(Recipe.build("ties", activation="gelu"))


def test_the_activation_is_asked_for_where_no_file_says_it(open_app: Any, tiny_folder: Path, tmp_path: Path) -> None:
    assert "Activation" not in {box.label for box in open_app("merge", tiny_folder).selectbox}
    folder = shutil.copytree(tiny_folder, tmp_path / "silent")
    silent = {"architecture": json.dumps({k: v for k, v in tiny.ARCHITECTURE.items() if k != "quick_gelu"})}
    save_file(tiny.pretrained(), folder / "models" / "pretrained.safetensors", silent)
    at = open_app("merge", folder)
    chosen = next(box for box in at.selectbox if box.label == "Activation")
    chosen.select("gelu").run()
    assert not at.exception
    assert at.query_params["chain"].startswith("activation:gelu;")


def test_whether_exemplars_are_drawn_depends_on_the_values() -> None:
    by_gradient, by_size = (parse_chain(f"tatr:sensitivity={s};ties", "p", ["a"]) for s in ("gradient", "magnitude"))
    assert by_gradient.needs_exemplars and not by_size.needs_exemplars
    by_size.edits[0].values["keep"] = 7.0  # refused elsewhere; until it is put right, the method's usual need counts
    assert by_size.needs_exemplars


def test_the_command_line_says_the_same() -> None:
    recipe = parse_chain("lwptv:prune_ratio=0.5;ties", "p q", ["a"]).recipe({"a": "x"})
    assert command_lines(recipe).splitlines()[-1] == (
        "mergescope merge --pretrained 'p q' --expert a=x --edit lwptv:prune_ratio=0.5 --merge ties "
        "--out merged.safetensors"
    )
    seeded = parse_chain("exemplars:seed=4;lot", "p", ["a"]).recipe({"a": "x"})
    assert command_lines(seeded) == "mergescope run recipe.yaml"


def test_a_changed_preset_loses_its_name() -> None:
    draft = Draft.from_recipe(PRESETS[1].recipe("p", {"a": "x"}))
    assert draft.recipe({"a": "x"}).title == PRESETS[1].title
    draft.merge.values["scaling"] = 0.9
    assert draft.recipe({"a": "x"}).title == ""


def test_a_draft_without_experts_is_no_recipe() -> None:
    draft = parse_chain("lwptv;ties", "p", [])
    with pytest.raises(MergingError, match="at least one expert"):
        draft.recipe({})

"""Model cards: what the Hub reads of them, that the code on them works, and that names break out of nothing."""

from __future__ import annotations

import re

import numpy as np
import peers
import pytest
from huggingface_hub import ModelCard
from peers import front

from merging.base.errors import MergingError
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export
from merging.study.runs.execute import execute
from merging.tasks.context import Context


def test_the_card_is_what_the_hub_reads(run, tmp_path):
    ids = {"pretrained": "openai/clip-vit-base-patch32", "flags": "me/flags"}
    export(run, tmp_path / "hf", hub_ids=ids)
    head, text = front(tmp_path / "hf")
    assert head["base_model"] == [
        "openai/clip-vit-base-patch32", "circles.safetensors", "digits.safetensors", "me/flags", "leaves.safetensors",
    ]  # fmt: skip
    assert (head["base_model_relation"], head["library_name"]) == ("merge", "transformers")
    assert head["tags"] == ["merge", "model-merging", "clip", "lwptv", "ties"]
    card = ModelCard.load(tmp_path / "hf" / "README.md")
    rows = run.scores[run.scores["split"] == "reporting"]
    results = {result.dataset_type: result for result in card.data.eval_results}
    assert set(results) == set(rows["task"])
    for row in rows.to_dict("records"):
        result = results[row["task"]]
        assert result.metric_value == pytest.approx(row["accuracy"], abs=1e-4)
        assert (result.metric_args["n"], result.dataset_split) == (row["n"], "reporting")
        assert f"| {row['title']} | {'in' if row['task'] in run.experts else 'out'} | " in text
    assert run.inputs["experts/flags"] in text and "Yadav et al" in text and "prune_ratio: 0.7" in text
    with pytest.raises(MergingError, match="not the name of a repository"):
        export(run, tmp_path / "x", hub_ids={"flags": "https://x"})
    with pytest.raises(MergingError, match="There is no 'flag'"):
        export(run, tmp_path / "x", hub_ids={"flag": "a/b"})


def test_a_card_says_once_why_there_are_no_scores(tiny_benchmark, store, tmp_path, monkeypatch):
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tmp_path / "nowhere"))
    recipe = Recipe.build("ties", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)
    export(execute(recipe, store, context=Context(device="cpu")), tmp_path / "hf")
    _, text = front(tmp_path / "hf")
    assert text.count("Not evaluated") == 1 and "It was not evaluated" not in text


HOSTILE = "x\n---\nlicense: mit\n# <script>alert(1)</script> | `a` ``` $y$ [l](http://e) ![i](u) **b** \u202e & @u"


def test_hostile_names_break_out_of_nothing(tiny_benchmark, store, tmp_path):
    first, second = list(tiny_benchmark.experts.values())[:2]
    recipe = Recipe.build("ties", {}, [], tiny_benchmark.pretrained, {HOSTILE: first, "=1+1: {": second}, HOSTILE)
    export(execute(recipe, store, benchmark=tiny_benchmark, context=Context(device="cpu")), tmp_path / "hf")
    head, text = front(tmp_path / "hf")
    assert head["model-index"][0]["name"].startswith(r"x\n---\nlicense: mit\n# <script>")
    assert "license" not in head and head["base_model_relation"] == "merge"
    assert Recipe.load(tmp_path / "hf" / "recipe.yaml").title == HOSTILE
    outside = re.sub(r"^(````+|```)(\w*)\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "script" in outside and "````yaml" in text
    for markup in (
        r"(?<!\\)<script",
        r"\[l\]\(",
        r"!\[",
        r"\*\*b",
        "\u202e",
        r"(?m)^license",
        r"(?<!\\)\$y",
        "(?<!\\\\)`a`",
    ):
        assert not re.search(markup, outside), markup
    table = (tmp_path / "hf" / "tables" / "trim_thresholds.csv").read_text()
    assert "'=1+1: {" in table and "\n=1+1" not in table


@pytest.mark.parametrize("text", ["`", "a ``` b", "```\n````\nx"])
def test_blocks_of_code_end_where_they_should(text):
    from merging.base.text import code_block

    first, *inside, last = code_block(text, "yaml").splitlines()
    assert first == last + "yaml" and inside == text.splitlines() and last not in text


def test_the_code_on_the_card_works(small, run, tmp_path):
    from PIL import Image

    image = Image.fromarray(np.zeros((40, 40, 3), dtype=np.uint8))
    for name, source, to in (
        ("a", small, "open_clip"),
        ("b", run, "open_clip"),
        ("c", small, "hf"),
        ("d", peers.whole(), "open_clip"),
    ):
        folder = export(source, tmp_path / name, to=to).folder
        (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)
        code = code.replace("folder = '.'", f"folder = {str(folder)!r}")
        if to == "hf":  # its image processor needs a whole torchvision
            code = code.replace("CLIPImageProcessor,", "CLIPImageProcessorPil as CLIPImageProcessor,")
        scope = {"image": image}
        exec(code, scope)
        features = scope["features"].detach()
        assert features.shape == (1, scope["model"].visual.output_dim if to == "open_clip" else peers.EMBED)

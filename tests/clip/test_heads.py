"""Heads from text are open_clip's, released ones are read inertly, and the papers' prompts are what their hash says."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import sys
import warnings

import pytest
import tiny_data
import torch
from torch import nn

from merging.base.errors import CheckpointError, MergingError, TaskError
from merging.base.open_clip_import import prepare_torchvision
from merging.images.prompt_sets import MANIFEST_FILE, PROMPTS_FOLDER, list_prompt_keys, read_prompts, simplify_name
from merging.images.text_encoder import TextTower
from merging.images.zero_shot_heads import Head, build_head, fill_template, read_head, tokenize_for_clip
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats.safetensors import save
from merging.tasks.context import Context

EMBED = 12
NAMES = ["a dog", "ein großes Haus", 'the "{number}" 7 / [8]']
TEMPLATES = ["a photo of a {}.", "{} in a rather long sentence with many other words", "{}"]


@pytest.fixture(scope="module")
def clip():
    """A whole open_clip model with CLIP's vocabulary."""
    prepare_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

        torch.manual_seed(0)
        vision = CLIPVisionCfg(width=24, layers=2, head_width=8, patch_size=4, image_size=16)
        return CLIP(EMBED, vision, CLIPTextCfg(width=16, heads=2, layers=2), quick_gelu=True).eval()


def described(state, **more):
    """A checkpoint that says its architecture."""
    found = MappingCheckpoint(state, "clip")
    about = {"quick_gelu": True, "vision_cfg": {"head_width": 8}, "text_cfg": {"heads": 2}, **more}
    found.metadata = {"architecture": json.dumps(about)}
    return found


def of_open_clip(model):
    from open_clip import build_zero_shot_classifier
    from open_clip.tokenizer import SimpleTokenizer

    with torch.no_grad():
        weight = build_zero_shot_classifier(model, SimpleTokenizer(), NAMES, TEMPLATES)
        return weight.T, model.logit_scale.exp().item()


def test_heads_are_those_of_open_clip(clip):
    expected, scale = of_open_clip(clip)
    seen = []
    found = build_head(
        TextTower.open(described(clip.state_dict())), NAMES, TEMPLATES, context=Context(progress=seen.append)
    )
    assert torch.allclose(found.rows, expected, atol=1e-6) and found.rows.dtype == torch.float32
    assert found.scale == pytest.approx(scale) and torch.allclose(found.weight, expected * scale, atol=1e-4)
    assert seen[-1].fraction == 1.0
    custom = {
        name if name.startswith(("visual.", "logit")) else f"text.{name}": v for name, v in clip.state_dict().items()
    }
    again = build_head(TextTower.open(described(custom)), NAMES, TEMPLATES)
    assert torch.equal(again.rows, found.rows) and again.scale == found.scale


def test_only_the_text_part_is_read(clip):
    checkpoint, read = described(clip.state_dict()), []
    inner = checkpoint.read_flat
    checkpoint.read_flat = lambda name, start, stop: read.append(name) or inner(name, start, stop)
    TextTower.open(checkpoint)
    assert read and not [name for name in read if name.startswith("visual.")]


@pytest.mark.parametrize("act", ["quick_gelu", "gelu"])
def test_heads_of_transformers_are_the_same(act, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import CLIPConfig, CLIPModel

        torch.manual_seed(1)
        text = {"hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        vision = {"hidden_size": 24, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 3,
                  "image_size": 16, "patch_size": 4}  # fmt: skip
        config = CLIPConfig(text_config=text | {"hidden_act": act}, vision_config=vision | {"hidden_act": act},
                            projection_dim=EMBED)  # fmt: skip
        model = CLIPModel(config).eval()
        model.save_pretrained(tmp_path)
    found = build_head(TextTower.open(tmp_path), NAMES, ["a photo of a {}."])
    tokens = tokenize_for_clip([f"a photo of a {name}." for name in NAMES], 77)
    with torch.no_grad():
        states = model.text_model(input_ids=tokens).last_hidden_state
        own = model.text_projection(states[torch.arange(len(tokens)), tokens.argmax(dim=-1)])
    assert torch.allclose(found.rows, own / own.norm(dim=-1, keepdim=True), atol=1e-6)
    assert found.scale == pytest.approx(model.logit_scale.exp().item())


def test_what_has_no_text_tower_is_refused(clip):
    state = clip.state_dict()
    image_encoder = {name: value for name, value in state.items() if not name.startswith("transformer.")}
    for tensors, problem in (
        (image_encoder, "no text transformer, as published image encoders"),
        ({name: value for name, value in state.items() if name.startswith("visual.")}, "no text tower"),
        (state | {f"text.{name}": state[name] for name in ("token_embedding.weight",)}, "several text towers"),
        (state | {"cls_emb": torch.zeros(16)}, "another kind of text tower"),
        (state | {"logit_bias": torch.zeros(())}, "another kind of text tower"),
        ({name: value for name, value in state.items() if name != "ln_final.bias"}, "lacks 'ln_final.bias'"),
    ):
        with pytest.raises(CheckpointError, match=problem):
            TextTower.open(described(tensors))
    with pytest.raises(CheckpointError, match="how many heads a text tower of width 16"):
        TextTower.open(described(state, text_cfg={}))


def test_another_vocabulary_is_refused():
    tower = TextTower.open(described(tiny_data.text_state()))
    with pytest.raises(TaskError, match=r"300 tokens .* another tokenizer"):
        build_head(tower, ["x"], tokenize=lambda prompts, context: torch.full((1, context), 4000))


def test_without_open_clip_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip.tokenizer", None)
    with pytest.raises(TaskError, match="pip install open_clip_torch"):
        tokenize_for_clip(["a"], 77)


def test_templates_and_names_are_filled_in_literally():
    assert fill_template('a "{}".', "{x} %s {}") == 'a "{x} %s {}".'
    with pytest.raises(TaskError, match=r"has no \{\}"):
        fill_template("a photo", "dog")


# --- released heads --------------------------------------------------------------------------------------------------


class ClassificationHead(nn.Linear):
    """As released: the logit scale is folded into the weight."""

    def __init__(self, weight, bias=0.0):
        super().__init__(weight.shape[1], weight.shape[0])
        self.weight, self.bias = nn.Parameter(weight.clone()), nn.Parameter(torch.full((len(weight),), bias))
        self.normalize = True


def rows(classes=5, width=EMBED, seed=0):
    found = torch.randn(classes, width, generator=torch.Generator().manual_seed(seed))
    return found / found.norm(dim=1, keepdim=True)


def written(path, thing):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(thing, path)
    return path


HEAD_FILES = {
    "module": lambda p, w: written(p, ClassificationHead(w)),
    "pickled module": lambda p, w: p.write_bytes(pickle.dumps(ClassificationHead(w))),
    "state dict": lambda p, w: written(p, ClassificationHead(w).state_dict()),
    "half precision": lambda p, w: written(p, {"weight": w.half()}),
    "classifier": lambda p, w: written(p, {"classification_head.weight": w, "encoder.weight": torch.ones(2, 3)}),
    "safetensors": lambda p, w: save(p, {"weight": w}),
}  # fmt: skip


@pytest.mark.parametrize("kind", HEAD_FILES)
def test_released_heads_are_read_and_a_folded_scale_is_found(kind, tmp_path):
    path = tmp_path / "head_Cars.pt"
    HEAD_FILES[kind](path, 100 * rows())
    found = read_head(path, 5, EMBED, scale=30.0)
    assert found.scale == pytest.approx(100, rel=1e-3) and torch.allclose(found.rows, rows(), atol=1e-3)
    HEAD_FILES[kind](path, rows())
    assert read_head(path, None, EMBED, scale=30.0).scale == 30.0


def test_heads_that_cannot_be_used_are_refused_in_words(tmp_path):
    path = tmp_path / "head.pt"
    uneven = 100 * rows()
    uneven[2] *= 1.5
    square = rows(EMBED)
    square[0] = 0
    for thing, problem in (
        ({"weight": (100 * rows()).T}, "the transpose of a head"),
        ({"weight": rows(4)}, "has 4 classes; the data set has 5"),
        ({"weight": rows(5, 7)}, "rows have 7 numbers"),
        ({"weight": uneven}, "lengths from 100 to 150"),
        ({"weight": rows() * 1.3}, "neither 1 nor a logit scale"),
        ({"weight": rows() * float("nan")}, "not finite"),
        ({"weight": rows(), "bias": torch.ones(5)}, "a bias that is not zero"),
        ({"weight": rows(), "other.weight": rows()}, "not a head: it has 2 matrices"),
        ({"table": rows()}, "not a head: it has 0 matrices"),
    ):
        written(path, thing)
        with pytest.raises(MergingError, match=problem):
            read_head(path, 5, EMBED)
    written(path, {"weight": (100 * rows(EMBED + 1))[:EMBED].T.contiguous()})
    with pytest.raises(TaskError, match="is it transposed"):
        read_head(path, EMBED, EMBED)


def test_a_head_that_asks_to_run_code_is_refused(tmp_path):
    marker, path = tmp_path / "ran", tmp_path / "head.pt"

    class Evil:
        def __reduce__(self):
            import os

            return os.system, (f"touch {marker}",)

    path.write_bytes(pickle.dumps({"weight": Evil()}))
    with pytest.raises(CheckpointError, match="asks to run code"):
        read_head(path, 5, EMBED)
    assert not marker.exists()


def test_the_weight_is_what_released_heads_have():
    assert torch.equal(Head(rows(), 50.0).weight, rows() * 50)


# --- prompts ---------------------------------------------------------------------------------------------------------

SETS = {  # classes, prompts: from the table of the papers' data sets
    "sun397": (397, 2), "cars": (196, 8), "resisc45": (45, 18), "eurosat": (10, 3), "svhn": (10, 1), "gtsrb": (43, 3),
    "mnist": (10, 1), "dtd": (47, 8), "cifar10": (10, 18), "cifar100": (100, 18), "emnist": (10, 1),
    "fashion_mnist": (10, 2), "fer2013": (7, 6), "flowers102": (102, 1), "food101": (101, 1), "kmnist": (10, 1),
    "oxford_pets": (37, 1), "pcam": (2, 1), "rendered_sst2": (2, 1), "stl10": (10, 2), "imagenet": (1000, 80),
}  # fmt: skip


def test_the_prompts_are_what_their_hashes_say():
    said = json.loads((PROMPTS_FOLDER / MANIFEST_FILE).read_text("utf-8"))
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in PROMPTS_FOLDER.glob("*.json")}
    found.pop(MANIFEST_FILE)
    assert found == said and set(list_prompt_keys()) == set(SETS)


def test_the_notice_holds_the_terms_of_every_source():
    notice = (PROMPTS_FOLDER / "NOTICE").read_text("utf-8")
    sections = {part.split(",")[0]: part for part in notice.split("\n\n") if "copyright:" in part}
    for key in SETS:
        repository = "nik-dim/tall_masks" if "tall_masks" in read_prompts(key).source else "openai/CLIP"
        assert re.search(rf"\b{key}\b", sections[repository]), key
    assert all("Copyright (c)" in part for part in sections.values())
    assert "Permission is hereby granted, free of charge" in notice


@pytest.mark.parametrize("key", SETS)
def test_every_set_has_its_classes_and_templates(key):
    found = read_prompts(key)
    assert (len(found.class_names), len(found.templates)) == SETS[key]
    assert len(set(found.templates)) == len(found.templates)
    assert all(template.count("{}") == 1 for template in found.templates)
    assert all(name == name.strip() and name.isprintable() and name for name in found.class_names)
    distinct = {simplify_name(name) for name in found.class_names}
    assert len(distinct) == len(set(found.class_names)) == SETS[key][0] - 2 * (key == "imagenet")
    assert found.source and found.order
    assert set(found.numbers.values()) <= set(range(len(found.class_names)))
    clash = {
        alias
        for alias, n in found.numbers.items()
        if alias in distinct and simplify_name(found.class_names[n]) != alias
    }
    assert not clash
    assert found.match(found.class_names) == list(found.class_names) or found.class_names[0] in {"0", "o"}


def test_the_papers_sets_are_eight_and_thirteen():
    domains = [read_prompts(key).papers for key in SETS]
    assert domains == ["in domain"] * 8 + ["out of domain"] * 13


def test_names_of_folders_are_matched():
    assert read_prompts("eurosat").match(["River", "SeaLake", "AnnualCrop"]) == [
        "river",
        "lake or sea",
        "annual crop land",
    ]
    assert read_prompts("sun397").match(["a_abbey", "airplane_cabin"]) == ["abbey", "airplane cabin"]
    assert read_prompts("gtsrb").match([f"{n:05}" for n in range(43)]) == list(read_prompts("gtsrb").class_names)
    flowers = read_prompts("flowers102")
    ones = sorted(str(n) for n in range(1, 103))  # "1", "10", "100", "101", …
    assert flowers.match(ones)[1] == flowers.class_names[9]
    assert read_prompts("imagenet").match(["n01443537", "n01440764"]) == ["goldfish", "tench"]
    assert read_prompts("fer2013").match(["angry", "disgust", "neutral"]) == ["angry", "disgusted", "neutral"]
    assert read_prompts("mnist").match(["3 - three"]) == ["3"]
    with pytest.raises(TaskError, match=r"'rivre' is not a class of EuroSAT. Did you mean 'river'\? The lists first"):
        read_prompts("eurosat").match(["rivre"])
    with pytest.raises(TaskError, match="Two classes of the data set mean 'river'"):
        read_prompts("eurosat").match(["river", "River"])
    with pytest.raises(TaskError, match="Did you mean 'cifar100'"):
        read_prompts("cifar-100")

"""Benchmarks of one's own: every form of data gives the same folder, splits are stated, and what is odd is refused."""

from __future__ import annotations

import json
import re
import shlex
import textwrap

import numpy as np
import pytest
import tiny
import tiny_data
import torch
from PIL import Image

from merging.base import settings
from merging.base.errors import Cancelled, MergingError, TaskError
from merging.cli.main import main
from merging.engine.evaluation.evaluate import evaluate
from merging.engine.evaluation.feature_file import FeatureFile
from merging.engine.evaluation.image_features import compute_features
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.build.benchmark_description import Description
from merging.images.benchmarks.build.benchmark_folder import write_benchmark
from merging.images.benchmarks.manifest import altered
from merging.images.data_sets.data_set_formats import open_data
from merging.images.image_encoder import Encoder
from merging.images.prompt_sets import read_prompts
from merging.models.architecture import Architecture, architecture_in_metadata
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.safetensors import save
from merging.tasks.context import Context

PARTS = {"train": tiny_data.rows(4), "test": tiny_data.rows(6, 100)}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with models and data sets in all forms; do not change it."""
    root = tmp_path_factory.mktemp("own")
    tiny_data.whole_model(root / "clip.safetensors")
    tiny.write_family(root / "experts")
    tiny_data.folder(root / "folder", PARTS)
    tiny_data.arrow(root / "arrow", PARTS)
    tiny_data.parquet(root / "parquet", PARTS)
    arrays = {f"{part}_images": tiny_data.same_size(listed) for part, listed in PARTS.items()}
    arrays |= {f"{part}_labels": np.array([label for _, label in listed]) for part, listed in PARTS.items()}
    np.savez_compressed(root / "arrays.npz", class_names=np.array(tiny_data.NAMES), **arrays)
    return root


def described(base, tasks, **options):
    return Description.from_plain(
        {"pretrained": "clip.safetensors", "images": 4, "exemplars": 5, "tasks": tasks, **options}, base
    )


def made(base, folder, tasks, **options):
    return write_benchmark(described(base, tasks, **options), folder, tokenize=tiny_data.letters)


def test_a_benchmark_is_all_that_the_program_needs(base, tmp_path):
    tasks = {"flags": {"images": "folder", "expert": "experts/flags.safetensors", "title": "Fruit & fur"},
             "other": "arrow"}  # fmt: skip
    found = made(base, tmp_path / "bench", tasks)
    assert list(found.experts) == ["flags"] and found.find_task("flags").title == "Fruit & fur"
    assert found.find_task("flags").class_names == ("apple tree", "bear", "cat")
    assert [found.count_images("flags", split) for split in ("exemplars", "choosing", "reporting")] == [5, 4, 4]
    scores = evaluate(found.pretrained, found)
    assert len(scores) == 4 and set(scores["n"]) == {4}
    drawn = found.labeled_exemplars(3)["flags"]
    assert drawn.images.shape == (3, 3, tiny.SIZE, tiny.SIZE) and drawn.head.shape == (3, tiny.EMBED)
    assert torch.allclose(drawn.head.norm(dim=1), torch.ones(3), atol=1e-5)
    assert found.logit_scale == pytest.approx(float(torch.tensor(4.0).exp()))
    stored = open_checkpoint(found.pretrained)
    whole = open_checkpoint(base / "clip.safetensors")
    assert not [name for name in stored.infos if name.startswith("transformer.")]
    assert all(torch.equal(stored.read(name), whole.read(name)) for name in tiny.pretrained())
    text = open_checkpoint(tmp_path / "bench" / "text_tower.safetensors")  # for exports of whole CLIP models
    assert all(torch.equal(text.read(name), value) for name, value in tiny_data.text_state().items())
    assert architecture_in_metadata(text)["text_cfg"] == {"heads": tiny_data.HEADS}
    assert not altered(tmp_path / "bench")


def test_the_activation_can_be_named_and_one_that_is_assumed_is_told(base, tmp_path):
    tasks = {"flags": {"images": str(base / "folder")}}
    silent = {name: value for name, value in tiny.ARCHITECTURE.items() if name != "quick_gelu"}
    about = {"architecture": json.dumps(silent | {"text_cfg": {"heads": tiny_data.HEADS}})}
    save(tmp_path / "silent.safetensors", tiny.pretrained() | tiny_data.text_state(), about)
    assumed, named = (
        made(tmp_path, tmp_path / name, tasks, pretrained="silent.safetensors", **said)
        for name, said in (("a", {}), ("b", {"activation": "gelu"}))
    )
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in "ab"]
    assert any("--activation" in line for line in manifests[0]["cautions"])
    assert not any("--activation" in line for line in manifests[1]["cautions"])
    towers = [Architecture.from_checkpoint(open_checkpoint(found.pretrained)) for found in (assumed, named)]
    assert [tower.quick_gelu for tower in towers] == [True, False]
    heads = [found.load_head("flags") for found in (assumed, named)]
    assert not torch.equal(*heads)  # the text tower is of the same model
    with pytest.raises(TaskError, match="`activation` is quick_gelu or gelu; got 'relu'"):
        described(base, tasks, activation="relu")


def test_pixels_and_labels_are_those_of_the_data(base, tmp_path):
    from merging.images.preprocess import crop_square

    found = made(base, tmp_path / "bench", {"fruit": "folder"})
    known = {crop_square(Image.fromarray(tiny_data.picture(number)), tiny.SIZE).tobytes(): (part, label)
             for part, listed in PARTS.items() for number, label in listed}  # fmt: skip
    seen = {}
    for part, name in (("train", "exemplars"), ("test", "choosing"), ("test", "reporting")):
        images, labels = found.load_images("fruit", name)
        seen[name] = [known[image.tobytes()] for image in images]
        assert seen[name] == [(part, label) for label in labels]
        assert len({image.tobytes() for image in images}) == len(images)
    shown = {image.tobytes() for image in found.load_images("fruit", "choosing")[0]}
    assert not shown & {image.tobytes() for image in found.load_images("fruit", "reporting")[0]}


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_every_form_of_the_same_data_gives_the_same_benchmark(kind, base, tmp_path):
    first = made(base, tmp_path / "a", {"fruit": "folder"})
    second = made(base, tmp_path / "b", {"fruit": kind})
    assert second.digest == first.digest


def test_the_same_seed_gives_the_same_bytes_and_another_one_another_draw(base, tmp_path):
    tasks = {"fruit": "folder", "arrays": "arrays.npz"}
    one, two, three = (made(base, tmp_path / n, tasks, seed=s) for n, s in (("1", 0), ("2", 0), ("3", 1)))
    assert one.digest == two.digest != three.digest
    alone = made(base, tmp_path / "4", {"arrays": "arrays.npz"})
    assert (alone.load_images("arrays", "choosing")[0] == one.load_images("arrays", "choosing")[0]).all(), (
        "not by other tasks"
    )


def test_all_images_can_be_taken(base, tmp_path):
    found = made(base, tmp_path / "bench", {"fruit": "folder"}, images=0, exemplars=0)
    assert [found.count_images("fruit", name) for name in ("exemplars", "choosing", "reporting")] == [12, 9, 9]
    halves = [np.bincount(found.load_images("fruit", name)[1], minlength=3) for name in ("choosing", "reporting")]
    assert sum(halves).tolist() == [6, 6, 6] and min(map(min, halves)) > 0, "the halves are drawn at random"


@pytest.mark.parametrize(
    ("parts", "counts", "rule"),
    [
        ({"": 8}, (12, 6, 6), "one part, cut by seed 3"),
        ({"train": 8}, (12, 6, 6), "one part"),
        ({"train": 4, "val": 8}, (12, 12, 12), "test images from part 'validation'"),
        ({"train": 4, "val": 2, "test": 8}, (12, 12, 12), "part 'validation' is not used"),
        ({"test": 8}, (0, 12, 12), "no exemplars"),
    ],
)
def test_splits_are_stated_and_apart(parts, counts, rule, base, tmp_path):
    each = {part: tiny_data.rows(n, 1000 * i) for i, (part, n) in enumerate(parts.items())}
    tiny_data.folder(tmp_path / "data", each)
    expert = str(base / "experts/flags.safetensors")
    task = {"images": str(tmp_path / "data"), "expert": expert}
    found = made(base, tmp_path / "bench", {"fruit": task}, images=0, exemplars=0, seed=3)
    assert tuple(found.count_images("fruit", name) for name in ("exemplars", "choosing", "reporting")) == counts
    said = json.loads((tmp_path / "bench" / "manifest.json").read_text())["tasks"]["fruit"]
    assert rule in said["split"] and bool(said["cautions"]) == (len(parts) == 1)
    names = [name for name in ("exemplars", "choosing", "reporting") if found.count_images("fruit", name)]
    images = [image.tobytes() for name in names for image in found.load_images("fruit", name)[0]]
    assert len(set(images)) == len(images)


def test_an_image_in_both_parts_is_told(tmp_path, base):
    tiny_data.folder(tmp_path / "data", {"train": tiny_data.rows(4), "test": tiny_data.rows(4)})
    found = made(base, tmp_path / "bench", {"fruit": str(tmp_path / "data")}, images=0, exemplars=0)
    said = json.loads((found.folder / "manifest.json").read_text())["tasks"]["fruit"]
    assert said["cautions"] == ["12 test images are also exemplars."]


def test_images_are_prepared_batch_by_batch(base, tmp_path, monkeypatch):
    found = made(base, tmp_path / "bench", {"fruit": "folder"}, images=0)
    encoder, (images, _) = (
        Encoder.from_checkpoint(open_checkpoint(found.pretrained)),
        found.load_images("fruit", "reporting"),
    )
    whole = compute_features(encoder, found.preprocess(images))
    monkeypatch.setattr("merging.engine.evaluation.image_features.HEAD_BATCH", 4)
    assert torch.allclose(compute_features(encoder, images, prepare=found.preprocess), whole, atol=1e-6)
    monkeypatch.setattr("merging.engine.evaluation.evaluate.CACHED_BYTES", 0)
    assert evaluate(found.pretrained, found)["n"].tolist() == [9, 9]


# --- damaged images --------------------------------------------------------------------------------------------------


def test_a_damaged_image_is_named_and_another_one_is_taken(tmp_path, base):
    tiny_data.folder(tmp_path / "data", {"train": tiny_data.rows(10), "test": tiny_data.rows(10, 500)})
    bad = tmp_path / "data" / "test" / "bear" / "00511.png"
    bad.write_bytes(bad.read_bytes()[:40])
    (tmp_path / "data" / "test" / "notes.txt").write_text("x")
    found = made(base, tmp_path / "bench", {"fruit": str(tmp_path / "data")}, images=0, exemplars=0)
    assert found.count_images("fruit", "choosing") + found.count_images("fruit", "reporting") == 29
    said = json.loads((found.folder / "manifest.json").read_text())["tasks"]["fruit"]
    assert said["damaged"] == 1 and "test/bear/00511.png is a damaged PNG" in said["damaged_images"][0]
    few = made(base, tmp_path / "few", {"fruit": str(tmp_path / "data")}, images=14)
    assert few.count_images("fruit", "choosing") + few.count_images("fruit", "reporting") == 28, (
        "replaced by the next of the draw"
    )


def test_more_than_a_tenth_damaged_stops_and_leaves_nothing(tmp_path, base):
    tiny_data.folder(tmp_path / "data", {"test": tiny_data.rows(8)})
    for path in sorted((tmp_path / "data" / "test" / "cat").iterdir())[:3]:
        path.write_bytes(b"")
    with pytest.raises(TaskError, match=r"fruit: 3 of 24 images cannot be read: test/cat/000\d\d.png is empty"):
        made(base, tmp_path / "bench", {"fruit": str(tmp_path / "data")}, images=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_links_that_lead_out_are_not_followed(tmp_path, base):
    tiny_data.folder(tmp_path / "data", {"test": tiny_data.rows(12)})
    secret = tmp_path / "secret.png"
    secret.write_bytes(tiny_data.png(1))
    (tmp_path / "data" / "test" / "cat" / "link.png").symlink_to(secret)
    data = open_data(tmp_path / "data")
    pictures = dict(data.read_images("test", range(len(data.parts["test"]))))
    bad = [picture for picture in pictures.values() if isinstance(picture, TaskError)]
    assert len(bad) == 1 and "link that leads outside" in str(bad[0])
    (tmp_path / "data" / "train").symlink_to(tmp_path / "data" / "test")
    with pytest.raises(TaskError, match="train is a link to a folder"):
        open_data(tmp_path / "data")


def test_released_heads_keep_their_rows_with_their_classes(base, tmp_path):
    (tmp_path / "data").mkdir()
    tiny_data.folder(tmp_path / "data", {"": tiny_data.rows(4)})
    (tmp_path / "data" / "apple_tree").rename(tmp_path / "data" / "dog")
    stl = read_prompts("stl10")
    weight = torch.nn.functional.normalize(
        torch.randn(10, tiny.EMBED, generator=torch.Generator().manual_seed(0)), dim=1
    )
    torch.save({"weight": 100 * weight}, tmp_path / "head_STL10.pt")
    task = {"images": str(tmp_path / "data"), "prompts": "stl10", "head": str(tmp_path / "head_STL10.pt")}
    with pytest.raises(TaskError, match="'bear' is not a class of STL-10"):
        made(base, tmp_path / "bench", {"stl": task})
    (tmp_path / "data" / "bear").rename(tmp_path / "data" / "truck")
    found = made(base, tmp_path / "bench", {"stl": task})
    names = found.find_task("stl").class_names
    assert names == ("cat", "dog", "truck") and found.logit_scale == pytest.approx(100, rel=1e-4)
    expected = weight[[stl.class_names.index(name) for name in names]]
    assert torch.allclose(found.load_head("stl"), expected, atol=1e-5)
    torch.save({"weight": 20 * weight[:3]}, tmp_path / "other.pt")
    other = {"images": str(base / "folder"), "head": str(tmp_path / "other.pt")}
    with pytest.raises(TaskError, match=r"different logit scales .other 20, stl 100"):
        made(base, tmp_path / "b2", {"stl": task, "other": other})


# --- models, folders and the command line ----------------------------------------------------------------------------


def test_models_that_do_not_fit_are_refused(base, tmp_path):
    save(tmp_path / "odd.safetensors", {name: value[:1] for name, value in tiny.pretrained().items()})
    task = {"images": "folder", "expert": str(tmp_path / "odd.safetensors")}
    with pytest.raises(MergingError, match="shape"):
        made(base, tmp_path / "bench", {"fruit": task})
    with pytest.raises(MergingError, match=r"^pretrained.safetensors holds no text tower; .* Heads are built with"):
        made(base, tmp_path / "bench", {"fruit": "folder"}, pretrained="experts/pretrained.safetensors")
    found = made(base, tmp_path / "bench", {"fruit": "folder"}, pretrained="experts/pretrained.safetensors",
                 text="clip.safetensors")  # fmt: skip
    assert found.load_head("fruit").shape == (3, tiny.EMBED)


def test_a_folder_is_never_overwritten_by_mistake_and_a_stop_leaves_nothing(base, tmp_path):
    made(base, tmp_path / "bench", {"fruit": "folder"})
    with pytest.raises(TaskError, match="--overwrite"):
        made(base, tmp_path / "bench", {"fruit": "folder"})
    write_benchmark(described(base, {"fruit": "arrow"}), tmp_path / "bench", tokenize=tiny_data.letters, force=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(TaskError, match="was not made by this command"):
        write_benchmark(described(base, {"fruit": "arrow"}), tmp_path / "mine", force=True)
    asked = []
    with pytest.raises(Cancelled):
        write_benchmark(described(base, {"fruit": "folder"}), tmp_path / "stopped", tokenize=tiny_data.letters,
             context=Context(cancel=lambda: asked.append(1) or len(asked) > 5))  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench", "mine"]


def test_a_disk_without_room_is_told_before_anything_is_written(base, tmp_path, monkeypatch):

    from merging.images.benchmarks.build import benchmark_plan

    monkeypatch.setattr(benchmark_plan, "free_bytes", lambda folder: 900)
    with pytest.raises(TaskError, match=r"900 bytes are free. Ask for fewer images"):
        made(base, tmp_path / "bench", {"fruit": "folder"})


def test_cached_features_tell_the_accuracy_of_their_model_only(base, tmp_path, capsys):
    found = made(base, tmp_path / "bench", {"fruit": "folder"})
    model = open_checkpoint(found.pretrained)
    images, labels = found.load_images("fruit", "reporting")
    own = compute_features(Encoder.from_checkpoint(model), found.preprocess(images))
    cached = FeatureFile(own, torch.from_numpy(labels), model.digest)
    cached.save(tmp_path / "features.npz")
    scores = evaluate(model, found, splits=["reporting"]).iloc[0]
    assert (
        FeatureFile.load(tmp_path / "features.npz").score(model, found.load_head("fruit"))["accuracy"]
        == scores["accuracy"]
    )
    save(tmp_path / "head.safetensors", {"weight": found.load_head("fruit")})
    asked = [
        "benchmark",
        "score",
        str(tmp_path / "features.npz"),
        "--head",
        str(tmp_path / "head.safetensors"),
        "--model",
    ]
    assert main([*asked, found.pretrained, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 4
    assert main([*asked, str(base / "experts/flags.safetensors")]) == 1
    assert "features of one model say nothing of another" in capsys.readouterr().err


@pytest.mark.full
def test_the_steps_of_the_documents_do_what_they_say(tmp_path, monkeypatch, capsys):
    tiny_data.open_clip_folder(tmp_path / "clip")
    for name in ("eurosat", "pets"):
        (tmp_path / "experts").mkdir(exist_ok=True)
        tiny.write(tmp_path / "experts" / f"{name}.safetensors", tiny.expert(tiny.pretrained(), len(name)))
    torch.save({"weight": 54.6 * torch.eye(3, tiny.EMBED)}, tmp_path / "experts" / "head_shapes.pt")
    names = {"apple_tree": "River", "bear": "SeaLake", "cat": "Forest"}
    tiny_data.folder(tmp_path / "data" / "eurosat", PARTS)
    for part in PARTS:
        for old, new in names.items():
            (tmp_path / "data" / "eurosat" / part / old).rename(tmp_path / "data" / "eurosat" / part / new)
    tiny_data.folder(tmp_path / "data" / "shapes", {"": tiny_data.rows(8)})
    listed = tiny_data.rows(8)
    np.savez(tmp_path / "data" / "pets.npz", images=tiny_data.same_size(listed), labels=[label for _, label in listed],
             class_names=["abyssinian", "beagle", "pug"])  # fmt: skip
    monkeypatch.chdir(tmp_path)
    section = (settings.BUNDLED_FOLDER.parent / "docs" / "own_benchmark.md").read_text("utf-8")
    yaml = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1]
    (tmp_path / "tasks.yaml").write_text(textwrap.dedent("   " + yaml).strip() + "\n")
    commands = re.findall(r"^ +((?:MERGESCOPE_\w+=\w+ )?mergescope .*)$", section, re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        words = shlex.split(command)
        if words[0].startswith("MERGESCOPE_"):
            monkeypatch.setenv(*words.pop(0).split("="))
        assert main(words[1:]) == 0, command
    found = Benchmark.load(tmp_path / "mine")
    assert list(found.experts) == ["eurosat", "pets"] and found.mean == (0.5, 0.4, 0.3)
    assert found.find_task("eurosat").class_names == ("forest", "river", "lake or sea")
    assert found.find_task("shapes").title == "Drawn shapes" and found.logit_scale == pytest.approx(54.6, rel=1e-3)
    shown = capsys.readouterr().out
    assert "test 18, train 12 images, 3 classes" in shown and "There is no test part" in shown

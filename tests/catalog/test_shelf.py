"""Models in folders: found within bounds, told by their content, grouped, kept as sets; uploads, digests, checks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import bad_files
import pytest
import tiny
import torch
from safetensors.torch import save_file

from merging import settings
from merging.catalog import fit_reports, folder_walk, scan, uploads
from merging.catalog.groups import ModelGroup, groups, nearest
from merging.catalog.model_sets import ModelSet, all_sets, forget, keep, make, usable_name
from merging.catalog.recognize import ModelFacts, recognize
from merging.catalog.scan import CatalogEntry, Listing
from merging.checkpoints import digests, references
from merging.checkpoints.views import to_naming
from merging.cli.main import main
from merging.errors import CheckpointError, StoreError
from merging.export import stored
from merging.files.disk import folder_size
from merging.formats.opening import open_checkpoint
from merging.inspection.fit import fit
from merging.inspection.fit_report import FitReport
from merging.runs.disk_usage import WEIGHTS, usage
from merging.runs.store import Store

CONFIG = {
    "model_type": "clip_vision_model", "hidden_act": "quick_gelu", "hidden_size": tiny.WIDTH, "num_attention_heads": 2,
    "num_hidden_layers": tiny.LAYERS, "image_size": tiny.SIZE, "patch_size": tiny.PATCH, "projection_dim": tiny.EMBED,
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty models folder called "clip", as $MERGESCOPE_MODELS names it."""
    folder = tmp_path / "clip"
    folder.mkdir()
    monkeypatch.setenv("MERGESCOPE_MODELS", str(folder))
    return folder


def listed(folder: Path) -> Listing:
    return scan.models_folder(folder.name, folder)


def seen(folder: Path) -> list[tuple[CatalogEntry, ModelFacts]]:
    return [(item, recognize(item)) for item in listed(folder).items]


def one(found: list[ModelGroup]) -> ModelGroup:
    assert len(found) == 1, found
    return found[0]


def names(group: ModelGroup) -> dict[str, str]:
    """What a group's experts are called, and where they are."""
    return {name: item.place for name, item in group.experts.items()}


def transformers(folder: Path, state: tiny.StateDict) -> Path:
    folder.mkdir(parents=True)
    converted = {name: value.contiguous() for name, value in to_naming(state, "hf").items()}
    save_file(converted, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


# --- folders that are named, and what leads out of them


def test_models_folders_have_distinct_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "a" / "clip", tmp_path / "b" / "clip"
    monkeypatch.setenv("MERGESCOPE_MODELS", os.pathsep.join(["", str(one), str(other), str(one)]))
    assert settings.models_folders() == {"clip": one, "clip-2": other}
    assert references.locate("models:clip-2/x.pt") == other / "x.pt"
    assert references.locate("models:clip") == one


@pytest.mark.parametrize(
    "reference",
    ["models:clip/../secret", "models:clip//etc", "models:clip/a\\b", "models:clip/.", "models:clip/",
     "models:nobody/x", "models:clip/a\0b", "models:clip/out/secret.safetensors"],
)  # fmt: skip
def test_a_reference_cannot_lead_out_of_a_models_folder(root: Path, tmp_path: Path, reference: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    save_file(bad_files.state(), tmp_path / "elsewhere" / "secret.safetensors")
    (root / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError):
        open_checkpoint(reference)


@pytest.mark.parametrize(("text", "on"), [("", False), ("0", False), ("off", False), ("1", True), ("yes", True)])
def test_shared_is_a_switch(text: str, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_SHARED", text)
    assert settings.shared() is on


def test_links_to_folders_are_named_and_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    save_file(bad_files.state(), tmp_path / "elsewhere" / "secret.safetensors")
    (root / "out").symlink_to(tmp_path / "elsewhere")
    (root / "loop").symlink_to(root)
    (root / "file.safetensors").symlink_to(tmp_path / "elsewhere" / "secret.safetensors")
    found = {item.place: recognize(item) for item in listed(root).items}
    assert set(found) == {"clip/out", "clip/loop", "clip/file.safetensors"}
    assert all(what.kind == "unreadable" for what in found.values())
    assert "not followed" in found["clip/out"].problem
    assert "outside of" in found["clip/file.safetensors"].problem
    assert str(tmp_path) not in "".join(what.problem for what in found.values())


def test_the_walk_has_bounds(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = root
    for level in range(folder_walk.DEEPEST + 2):
        deep = deep / f"level{level}"
        deep.mkdir()
        (deep / "x.pt").touch()
    (root / ".hidden").mkdir()
    (root / ".hidden" / "y.pt").touch()
    found = listed(root)
    assert len(found.items) == folder_walk.DEEPEST
    assert any("too deep" in note for note in found.notes)
    for number in range(30):
        (root / f"many{number:02}.pt").touch()
    monkeypatch.setattr(folder_walk, "MOST", 10)
    found = listed(root)
    assert len(found.items) <= 10
    assert any("only the first 10" in note for note in found.notes)


def test_a_folder_that_is_gone_is_a_note(root: Path) -> None:
    root.rmdir()
    found = listed(root)
    assert not found.items and "cannot be read" in found.notes[0]
    assert recognize(scan.typed(str(root)).items[0]).kind == "unreadable"


# --- what a file is


def test_a_model_is_told_by_its_content(root: Path) -> None:
    base, tuned = tiny.family()
    tiny.write(root / "a.bin", base)
    torch.save(tuned["flags"], root / "b.safetensors")
    transformers(root / "c", base)
    found = {item.name: what for item, what in seen(root)}
    assert {what.kind for what in found.values()} == {"model"}
    assert found["a"].format == "safetensors" and found["b"].format == "torch file (zip archive)"
    assert found["c"].names.startswith("Transformers") and found["c"].activation == "quick_gelu"
    assert found["a"].architecture == "2 × 16, patch 8, 16 px" == found["b"].architecture
    assert len({what.signature for what in found.values()}) == 1
    near = found["b"].distance(found["a"])
    assert near is not None and 0 < near < 0.5
    assert nearest(found["b"], {"base": found["a"]}) == ("base", near)
    assert found["c"].distance(found["a"]) == pytest.approx(0, abs=2e-3)  # it was written in half precision


def test_heads_unknown_models_and_other_files_are_told_apart(root: Path) -> None:
    torch.save({"weight": torch.ones(7, 8)}, root / "head_Cars.pt")
    save_file({name: torch.ones(3, 3) for name in "abcde"}, root / "net.safetensors")
    (root / "README.md").write_text("hello")
    (root / "evil.npz").write_bytes(b"PK\3\4 no archive")
    found = {item.place.rpartition("/")[2]: (item, what) for item, what in seen(root)}
    assert found["head_Cars.pt"][1].kind == "head"
    assert found["head_Cars.pt"][1].architecture == "7 classes, 8 features"
    assert found["net.safetensors"][1].kind == "other"
    assert "no known model family" in found["net.safetensors"][1].problem
    for name in ("README.md", "evil.npz"):
        assert not found[name][0].sure and found[name][1].kind == "unreadable"


@pytest.mark.parametrize("case", bad_files.CASES)
def test_a_bad_file_is_listed_with_the_reason(root: Path, case: str) -> None:
    build, says = bad_files.CASES[case]
    path = build(root)
    if path == root or not os.path.lexists(path):
        return  # nothing is there to be listed
    found = {item.path: what for item, what in seen(root)}
    if path not in found:  # two shards of a model's folder, which is one item
        path = root
    assert found[path].kind == "unreadable", case
    import re

    assert re.search(f"{says}|outside of", found[path].problem), found[path].problem
    assert not (root / bad_files.MARKER).exists()


def test_a_file_that_no_code_expected_is_a_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.write(root / "a.safetensors", tiny.pretrained())

    def broken(*args: object) -> None:
        raise IndexError("surprise")

    monkeypatch.setattr("merging.catalog.recognize._recognize", broken)
    (_, what), *_ = seen(root)
    assert what.kind == "unreadable" and "IndexError" in what.problem and "surprise" not in what.problem


def test_a_name_that_is_no_text_is_listed(root: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(root) + b"/\xff.safetensors")).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system has text for names")
    (_, what), *_ = seen(root)
    assert "cannot be decoded" in what.problem


# --- which belong together


def test_published_task_vectors(root: Path) -> None:
    base, tuned = tiny.family()
    model = root / "ViT-B-32"
    for name, state in tuned.items():
        (model / name.capitalize()).mkdir(parents=True)
        torch.save(state, model / name.capitalize() / "finetuned.pt")
        torch.save({"weight": torch.ones(5, tiny.EMBED)}, model / f"head_{name.capitalize()}.pt")
    torch.save(base, model / "zeroshot.pt")
    group = one(groups(seen(root)))
    assert group.pretrained is not None and group.pretrained.place == "clip/ViT-B-32/zeroshot.pt"
    assert names(group) == {n.capitalize(): f"clip/ViT-B-32/{n.capitalize()}/finetuned.pt" for n in tuned}
    assert set(group.heads) == {name.capitalize() for name in tuned}
    assert "task vectors" in group.layout and not group.guessed


def test_experts_with_a_copy_of_the_pretrained_model_each(root: Path) -> None:
    base, tuned = tiny.family()
    for name, state in tuned.items():
        (root / f"{name}Val").mkdir()
        torch.save(base, root / f"{name}Val" / "nonlinear_zeroshot.pt")
        torch.save(state, root / f"{name}Val" / "nonlinear_finetuned.pt")
    group = one(groups(seen(root)))
    assert set(group.experts) == set(tuned)
    assert group.pretrained is not None and group.pretrained.name == "nonlinear_zeroshot"


def test_a_folder_for_each_expert(root: Path) -> None:
    base, tuned = tiny.family()
    transformers(root / "clip-vit-tiny", base)
    for name, state in tuned.items():
        transformers(root / f"clip-vit-tiny_{name}", state)
    group = one(groups(seen(root)))
    assert group.pretrained is not None and group.pretrained.name == "clip-vit-tiny"
    assert set(group.experts) == set(tuned)  # without what all names begin with


def test_files_whose_pretrained_model_is_told_by_its_numbers(root: Path) -> None:
    base, tuned = tiny.family()
    for name, state in {**tuned, "x": base}.items():
        tiny.write(root / f"{name}.safetensors", state, torch.float32)
    tiny.write(root / "stranger.safetensors", tiny.pretrained(seed=5), torch.float32)
    group = one(groups(seen(root)))
    assert group.guessed and group.pretrained is not None and group.pretrained.name == "x"
    assert set(group.experts) == set(tuned) and group.apart == ("stranger",)


def test_no_pretrained_model_is_made_up(root: Path) -> None:
    for name, state in tiny.family()[1].items():
        tiny.write(root / f"{name}.safetensors", state, torch.float32)
    assert one(groups(seen(root))).pretrained is None


def test_the_pretrained_model_may_lie_elsewhere(root: Path) -> None:
    base, tuned = tiny.family(("a", "b"))
    states = {f"experts/{name}": state for name, state in tuned.items()}
    for place, state in {**states, "clip/model": base, "other/model": tiny.pretrained(9)}.items():
        (root / place).parent.mkdir(exist_ok=True)
        tiny.write(root / f"{place}.safetensors", state, torch.float32)
    group = next(group for group in groups(seen(root)) if group.title.endswith("experts"))
    assert group.pretrained is not None and group.pretrained.place.endswith("clip/clip")
    assert group.guessed and set(group.experts) == {"a", "b"}


def adapter(folder: Path, base: str) -> None:
    folder.mkdir()
    layer = "base_model.model.vision_model.encoder.layers.0.self_attn.q_proj"
    tensors = {f"{layer}.lora_A.weight": torch.ones(2, tiny.WIDTH), f"{layer}.lora_B.weight": torch.ones(tiny.WIDTH, 2)}
    save_file(tensors, folder / "adapter_model.safetensors")
    said = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps(said))


def test_adapters_with_their_base(root: Path) -> None:
    transformers(root / "clip-vit-tiny", tiny.pretrained())
    for name in ("cars", "dtd"):
        adapter(root / name, "somebody/clip-vit-tiny")
    group = one(groups(seen(root)))
    assert group.pretrained is not None and group.pretrained.name == "clip-vit-tiny"
    assert set(group.experts) == {"cars", "dtd"} and "adapters" in group.layout


def test_a_benchmark_folder(root: Path) -> None:
    tiny.write_benchmark(root / "bench")
    found = listed(root)
    assert [item.place for item in found.benchmarks] == ["clip/bench"]
    group = one(groups([(item, recognize(item)) for item in found.items], found.benchmarks))
    assert group.title == "clip/bench" and set(group.experts) == set(tiny.EXPERTS)  # the multi-task model is no expert
    assert not any("data" in item.place for item in found.items)


def test_a_repository_of_the_hub_is_called_by_its_name(root: Path) -> None:
    snapshot = root / "models--org--clip" / "snapshots" / ("0" * 40)
    transformers(snapshot, tiny.pretrained())
    (root / "models--org--clip" / "blobs").mkdir()
    (root / "models--org--clip" / "blobs" / "abc").write_bytes(b"x")
    ((item, what),) = seen(root)
    assert item.name == "org/clip" and what.kind == "model"


# --- sets


def kept(root: Path, **changes: object) -> ModelSet:
    about = {"title": "Mine", "pretrained": "models:clip/p", "experts": {"a": "models:clip/a", "b": "models:clip/b"}}
    made = make(**(about | changes))  # type: ignore[arg-type]
    keep(root, made)
    return made


def test_a_set_survives_and_is_named_by_its_content(tmp_path: Path) -> None:
    made = kept(tmp_path)
    assert all_sets(tmp_path) == [made]
    renamed = kept(tmp_path, title="Yours")
    assert renamed.id == made.id and all_sets(tmp_path) == [renamed]
    other = kept(tmp_path, experts={"b": "models:clip/b", "a": "models:clip/a"})
    assert other.id != made.id  # the order of experts is part of a run, too
    forget(tmp_path, made.id)
    forget(tmp_path, "../../etc/passwd")
    assert all_sets(tmp_path) == [other]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"title": " "}, "title"),
        ({"title": "a\nb"}, "title"),
        ({"pretrained": ""}, "pretrained"),
        ({"experts": {}}, "Choose experts"),
        ({"experts": {"a,b": "x"}}, "cannot be named"),
        ({"experts": {"a=b": "x"}}, "cannot be named"),
        ({"experts": {"a\u202eb": "x"}}, "cannot be named"),
        ({"experts": {"a": "models:clip/p"}}, "among the experts"),
        ({"experts": {"a": "x", "b": "x"}}, "same file"),
    ],
)
def test_a_set_that_makes_no_sense_is_refused(tmp_path: Path, changes: Mapping[str, object], says: str) -> None:
    with pytest.raises(StoreError, match=says):
        kept(tmp_path, **changes)


def test_names_of_files_become_names_of_experts() -> None:
    assert [usable_name(name) for name in ("a,b=c", " x\ny ", "\u202e", "n" * 99)] == [
        "a b c",
        "x y",
        "expert",
        "n" * 60,
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"title": 1}', '{"title": "x", "pretrained": "p", "experts": [["a"]]}']
)
def test_a_damaged_set_is_no_set(tmp_path: Path, text: str) -> None:
    made = kept(tmp_path)
    (tmp_path / "sets" / f"{made.id}.json").write_text(text)
    assert all_sets(tmp_path) == []


def test_a_server_for_several_people_offers_listed_models_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, typed = kept(tmp_path), kept(tmp_path, pretrained="/home/me/p.pt")
    assert {made.id for made in all_sets(tmp_path)} == {listed.id, typed.id}
    monkeypatch.setenv("MERGESCOPE_SHARED", "1")
    assert all_sets(tmp_path) == [listed]


# --- uploads


def test_an_upload_is_kept_under_its_hash(tmp_path: Path) -> None:
    content = tiny.write(tmp_path / "x.safetensors", tiny.pretrained()).read_bytes()
    item = uploads.keep(tmp_path, "../../My model?.SAFETENSORS", content)
    assert item.path.name == "My_model.safetensors" and item.path.parent.parent == tmp_path / "uploads"
    assert recognize(item).kind == "model"
    assert uploads.keep(tmp_path, "again.pt", content) == item == uploads.items(tmp_path)[0]
    uploads.delete(tmp_path, item)
    assert uploads.items(tmp_path) == []
    with pytest.raises(StoreError, match="no upload"):
        uploads.delete(tmp_path, CatalogEntry("x", tmp_path / "x.safetensors", "x"))


@pytest.mark.parametrize("name", ["CON", "a\0b", "x" * 300, "\u202egnp.pt", "", "/", "..", "=1+1.pt"])
def test_names_of_uploads_are_names_of_files(name: str) -> None:
    safe = uploads.safe_name(name)
    assert safe.isascii() and "/" not in safe and "\0" not in safe and len(safe) < 80
    assert safe.endswith((".safetensors", ".pt")) and not safe.startswith(".")


def test_an_upload_that_is_no_checkpoint_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"web page.*not kept"):
        uploads.keep(tmp_path, "x.safetensors", b"<!DOCTYPE html>")
    with pytest.raises(StoreError, match="64 MB"):
        uploads.keep(tmp_path, "x.safetensors", bytes(uploads.LIMIT + 1))
    assert uploads.items(tmp_path) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_uploads_have_a_limit_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tiny.write(tmp_path / f"{seed}.st", tiny.pretrained(seed)).read_bytes() for seed in (0, 1)]
    monkeypatch.setattr(uploads, "TOTAL", len(files[0]) + 10)
    uploads.keep(tmp_path, "a.safetensors", files[0])
    with pytest.raises(StoreError, match="delete some"):
        uploads.keep(tmp_path, "b.safetensors", files[1])


# --- what is remembered


def test_digests_are_remembered_between_processes(tmp_path: Path, tiny_family: tiny.Family) -> None:
    path = tmp_path / "p.safetensors"
    path.write_bytes(tiny_family.pretrained.read_bytes())
    assert main(["digest", str(path), "--store", str(tmp_path / "store"), "--json"]) == 0
    opened = open_checkpoint(path)
    digests.DIGESTS.clear()
    assert digests.DIGESTS.remembered(opened.state()) == ""
    digests.DIGESTS.load(tmp_path / "store")
    assert digests.DIGESTS.remembered(opened.state()) == opened.content_digest()
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    assert digests.DIGESTS.remembered(open_checkpoint(path).state()) == ""


def test_damaged_digests_are_no_digests(tmp_path: Path) -> None:
    (tmp_path / "digests").mkdir()
    for number, text in enumerate(("", "[]", '{"state": "x"}', '{"state": [1], "digest": 7}')):
        (tmp_path / "digests" / f"{number}.json").write_text(text)
    digests.DIGESTS.load(tmp_path)
    digests.DIGESTS.load(tmp_path / "nowhere")


def test_a_report_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    family = tiny.write_family(tmp_path / "models")
    store = tmp_path / "store"
    arguments = [f"--expert={name}={path}" for name, path in family.experts.items()]
    assert main(["fit", f"--pretrained={family.pretrained}", *arguments, "--values", "--keep", f"--store={store}"]) == 0

    def find() -> FitReport | None:
        below = open_checkpoint(family.pretrained, "pretrained")
        opened = {name: open_checkpoint(path, name, like=below) for name, path in family.experts.items()}
        return fit_reports.find(store, below, opened)

    found = find()
    assert found is not None and found.ok and set(found.distances) == set(family.experts)
    below = open_checkpoint(family.pretrained)
    assert found == fit(below, {n: open_checkpoint(p, n) for n, p in family.experts.items()}, values=True)
    next(iter((store / "checks").iterdir())).write_text("{}")
    assert find() is None
    tiny.write(family.pretrained, tiny.pretrained(3), torch.float32)
    assert find() is None


# --- what the store holds


def test_room_is_counted_by_what_takes_it(tmp_path: Path) -> None:
    for name, size in {
        "runs/a/model.safetensors": 50,
        "runs/a/run.json": 7,
        "measured/x/y.csv": 3,
        "odd.txt": 2,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    found = usage(tmp_path)
    assert (found[WEIGHTS], found["tables and scores of runs"], found["measurements"]) == (50, 7, 3)
    assert sum(found.values()) == 62 == folder_size(tmp_path)
    assert sum(usage(tmp_path / "nowhere").values()) == 0


def test_weights_can_be_dropped_and_the_rest_stays(tmp_path: Path, tiny_family: tiny.Family) -> None:
    from merging.recipes.recipe import Recipe
    from merging.runs.execute import execute

    store = Store(tmp_path, libraries=())
    experts = {name: str(path) for name, path in tiny_family.experts.items()}
    recipe = Recipe.build("ties", pretrained=str(tiny_family.pretrained), experts=experts)
    run = execute(recipe, store, evaluate=False)
    assert run.has_model
    tables = {name: run.table(name) for name in run.tables}
    store.drop_models(run.id)
    after = store.run(run.id)
    assert not after.has_model and after.recipe == recipe and after.created == run.created
    assert all(after.table(name).equals(table) for name, table in tables.items())
    assert not list(after.path.glob("*.safetensors"))
    assert execute(recipe, store, evaluate=False, need_model=True).has_model
    with pytest.raises(StoreError, match="own"):
        store.drop_models("0" * 12)


def test_exports_are_found_by_their_folders(tmp_path: Path) -> None:
    place = stored.place(tmp_path, "0123456789ab", "hf")
    (place / "tables").mkdir(parents=True)
    (place / "README.md").write_text("card")
    (place / "tables" / "a.csv").write_text("x")
    (tmp_path / "exports" / "something else").mkdir()
    (found,) = stored.exports(tmp_path)
    assert (found.run_id, found.to, found.card(), found.nbytes) == ("0123456789ab", "hf", "card", 5)
    assert [name for name, _ in found.files] == ["README.md", "tables/a.csv"]
    stored.delete(tmp_path, stored.Export("x", "hf", tmp_path))
    assert place.exists()
    stored.delete(tmp_path, found)
    assert list(stored.exports(tmp_path)) == [] == list(stored.exports(tmp_path / "nowhere"))

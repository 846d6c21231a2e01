"""Storage in four accounts: the paper's own figures from shapes alone, the smallest encodings, and stored runs."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import viz_tables

import merging
import viz
from merging.base import settings
from merging.models.architecture import Architecture
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.families import Role
from merging.models.tensor_info import TensorInfo
from merging.recipes.recipe import Recipe
from merging.study.analysis.storage_accounting import ACCOUNTS, MIB, paper_entries, storage_table, tensor_encodings
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from viz.chart import ChartError
from viz.figures.score_bars import ACCOUNTS as DRAWN

# width, blocks, patch, tokens and output of the visual tower; width of the text tower
TOWERS = {
    "ViT-B/32": (768, 12, 32, 50, 512, 512),
    "ViT-B/16": (768, 12, 16, 197, 512, 512),
    "ViT-L/14": (1024, 24, 14, 257, 768, 768),
    "ViT-H/14": (1280, 32, 14, 257, 1024, 1024),
}
PAPER = {"ViT-B/32": 432.77, "ViT-B/16": 426.45, "ViT-L/14": 1306.77, "ViT-H/14": 2608.49}
VISUAL = {"ViT-B/32": 335.12, "ViT-B/16": 328.80, "ViT-L/14": 1159.54, "ViT-H/14": 2411.18}
COUNTS = {"ViT-B/32": (158, 113_448_705), "ViT-L/14": (302, 342_562_049)}
VOCABULARY, CONTEXT = 49_408, 77


class Shapes(Checkpoint):
    """A checkpoint of which only the header is known."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.name, self.label, self.metadata = "shapes", "memory", {}
        self.infos = {name: TensorInfo(shape, torch.float32) for name, shape in shapes.items()}

    def read_flat(self, name, start, stop):
        raise AssertionError("no weight is read")


@pytest.fixture
def published(monkeypatch):
    """The image encoder of a published tower, with its six unused text tensors."""

    def made(tower):
        width, layers, patch, tokens, embed, text = TOWERS[tower]
        sizes = {"WIDTH": width, "LAYERS": layers, "PATCH": patch, "TOKENS": tokens, "EMBED": embed}
        for name, value in sizes.items():
            monkeypatch.setattr(tiny, name, value)
        unused = {
            "positional_embedding": (CONTEXT, text), "text_projection": (text, embed), "logit_scale": (),
            "token_embedding.weight": (VOCABULARY, text), "ln_final.weight": (text,), "ln_final.bias": (text,),
        }  # fmt: skip
        return Shapes(tiny.shapes() | unused)

    return made


def tensors(checkpoint, kept=lambda numel: numel):
    """The columns that the accounts need, for everything that is merged."""
    numels = [checkpoint.infos[p.name].numel for p in checkpoint.parameters if p.role != Role.BUFFER]
    return pd.DataFrame({"numel": numels, "kept_numel": [kept(numel) for numel in numels], "itemsize": 4})


@pytest.mark.parametrize("tower", TOWERS)
def test_a_dense_vector_takes_what_the_paper_prints(tower, published):
    checkpoint = published(tower)
    architecture = Architecture.from_checkpoint(checkpoint)
    assert (architecture.width, architecture.layers, architecture.patch_size) == TOWERS[tower][:3]
    table = tensors(checkpoint)
    entries = paper_entries(table, checkpoint.unused_text.numel)
    assert round(4 * entries / MIB, 2) == PAPER[tower]
    assert round(4 * paper_entries(table) / MIB, 2) == VISUAL[tower]
    if tower in COUNTS:
        assert (len(checkpoint.infos), entries) == COUNTS[tower]
        assert (len(checkpoint.infos) - len(table), checkpoint.unused_text.tensors) == (6, 6)


def test_a_pruned_vector_is_counted_by_its_entries(published):
    """LwPTV on ViT-B/32 prints 226.75: the 59.44 million scalars of the tensors that it keeps, nothing dead."""
    checkpoint = published("ViT-B/32")
    table = tensors(checkpoint)
    large = table["numel"] > 2_000_000
    table["kept_numel"] = table["numel"].where(large, 0)
    assert paper_entries(table, checkpoint.unused_text.numel) == table["numel"][large].sum()


def test_a_vector_is_dense_where_a_bitmap_of_its_zeros_would_not_pay():
    table = pd.DataFrame({"numel": [3200], "kept_numel": [3100], "itemsize": [4]})
    assert paper_entries(table, 50) == 3250
    bitmap = math.ceil(3200 / 8) + 3100 * 4
    assert (tensor_encodings(table)["bytes"].item(), bitmap) == (3200 * 4, 3200 * 4)
    table["kept_numel"] = 3099
    assert paper_entries(table, 50) == 3099
    assert tensor_encodings(table)["bytes"].item() == bitmap - 4


# Encodings


@pytest.mark.parametrize(
    ("numel", "kept", "itemsize", "encoding", "size"),
    [
        (1000, 0, 4, "left out", 0),
        (1000, 1000, 4, "dense", 4000),
        (1000, 999, 4, "dense", 4000),
        (1000, 500, 4, "bitmap", 125 + 2000),
        (1001, 500, 2, "bitmap", 126 + 1000),  # the last byte of a bitmap is begun
        (1000, 3, 4, "coordinates", 24),
        (1000, 3, 2, "coordinates", 18),
        (1, 1, 8, "dense", 8),
        (0, 0, 4, "left out", 0),
    ],
)
def test_the_smallest_encoding_is_taken(numel, kept, itemsize, encoding, size):
    found = tensor_encodings(pd.DataFrame({"numel": [numel], "kept_numel": [kept], "itemsize": [itemsize]}))
    assert found.to_dict("records") == [{"encoding": encoding, "bytes": size}]


def test_kept_tensors_alone_are_an_encoding():
    """LwPTV's own: some tensors whole, the others left out."""
    rng = np.random.default_rng(0)
    numel = rng.integers(1, 10_000, 100)
    kept = np.where(rng.random(100) < 0.3, numel, 0)
    found = tensor_encodings(pd.DataFrame({"numel": numel, "kept_numel": kept, "itemsize": 2}))
    assert set(found["encoding"]) == {"left out", "dense"}
    assert found["bytes"].sum() == 2 * kept.sum()


def test_no_encoding_is_larger_than_the_tensor():
    rng = np.random.default_rng(1)
    numel = rng.integers(0, 100_000, 2000)
    for itemsize in (2, 4, 8):
        kept = rng.binomial(numel, rng.random(2000))
        table = pd.DataFrame({"numel": numel, "kept_numel": kept, "itemsize": itemsize})
        found = tensor_encodings(table)["bytes"]
        assert (found <= numel * itemsize).all()
        assert (found >= kept * itemsize).all()


def test_minus_zero_is_zero():
    base = {name: torch.zeros(shape) for name, shape in tiny.shapes().items()}
    expert = {name: -torch.zeros_like(value) for name, value in base.items()}
    expert["visual.proj"] = expert["visual.proj"].clone()
    expert["visual.proj"][0, 0] = 0.5
    found = merging.merge(base, {"one": expert}, "weight_averaging", device="cpu").tables["tensors"]
    assert found["kept_numel"].sum() == 1
    assert tensor_encodings(found)["bytes"].sum() == 8  # one position, one value


# Stored runs


@pytest.fixture
def run_it(tiny_benchmark, tmp_path):
    store = Store(tmp_path / "store", libraries=())

    def call(key, params=None, edits=(), **options):
        recipe = Recipe.build(key, params or {}, edits, tiny_benchmark.pretrained, tiny_benchmark.experts)
        return execute(recipe, store, benchmark=tiny_benchmark, context=Context(device="cpu"), **options)

    return call


def accounts(run):
    """{account: {part: bytes}}"""
    table = storage_table(run)
    assert list(table.columns) == ["account", "part", "bytes"]
    assert not table.duplicated(["account", "part"]).any()
    return {a: dict(zip(rows["part"], rows["bytes"], strict=True)) for a, rows in table.groupby("account")}


def heads(run):
    return 4 * tiny.EMBED * tiny.CLASSES * len(run.experts)


@pytest.mark.full
@pytest.mark.parametrize(
    ("key", "params", "edits"),
    [
        ("weight_averaging", {}, []),
        ("ties", {"density": 0.1}, []),
        ("task_arithmetic", {}, ["lwptv"]),
        ("ties", {}, [("lwptv", {"granularity": "parameter"})]),
    ],
)
def test_accounts_of_a_single_model(run_it, key, params, edits):
    run = run_it(key, params, edits, keep_model=False)
    assert not run.has_model
    found, table = accounts(run), run.table("tensors")
    assert set(found) == set(ACCOUNTS) == set(DRAWN)
    whole = run_it(key, params, edits, need_model=True)
    file = whole.model_path.stat().st_size
    assert accounts(whole) == found
    assert found["dense"] == {"merged model": file}
    assert found["deploy"] == {"merged model": file, "heads": heads(run)}
    header = file - 2 * table["numel"].sum()
    assert found["sparse"]["header"] == header > 0
    assert sum(found["sparse"].values()) <= file
    kept = table["kept_numel"].sum()
    assert found["sparse"]["changed tensors"] >= 2 * kept
    dense = key == "weight_averaging"
    assert found["paper"]["task vector"] == 4 * (table["numel"].sum() if dense else kept)


def test_accounts_of_a_vector_that_all_tasks_share(run_it):
    run = run_it("emr", {}, ["lwptv"], keep_model=False)
    found, table = accounts(run), run.table("tensors")
    models = len(run.experts)
    touched = table[table["kept_numel"] > 0]
    assert 0 < len(touched) < len(table)
    masks = models * sum(math.ceil(numel / 8) for numel in touched["numel"])
    assert found["deploy"]["masks"] == found["sparse"]["masks"] == found["paper"]["masks"] == masks
    assert found["deploy"]["rescalers"] == 4 * models
    assert found["dense"] == {"models, one per task": run.sizes["files"]}
    assert found["deploy"]["pretrained model"] == run.sizes["files"] // models
    assert (
        found["deploy"]["unified task vector"] == tensor_encodings(table)["bytes"].sum() == 2 * touched["numel"].sum()
    )
    assert found["deploy"]["heads"] == heads(run)


def test_accounts_of_models_that_share_nothing(run_it, monkeypatch):
    run = run_it("emr", {}, ["lwptv"], keep_model=False)
    unified = accounts(run)
    monkeypatch.setattr(Run, "tables", tuple(name for name in run.tables if name != "rescalers"))
    found = accounts(run)
    by_task = run.table("task_tensors")
    assert found["deploy"] == {"models, one per task": run.sizes["files"], "heads": heads(run)}
    assert found["paper"]["task vectors, one per task"] == 4 * by_task["kept_numel"].sum()
    assert found["sparse"]["headers"] == run.sizes["header"]
    assert found["sparse"]["changed tensors"] > unified["sparse"]["unified task vector"]
    assert sum(found["sparse"].values()) <= run.sizes["files"]


def test_unused_text_tensors_count_for_a_dense_vector(run_it, tiny_folder, tmp_path):
    base, experts = tiny.family()
    text = {"logit_scale": torch.ones(()), "token_embedding.weight": torch.ones(11, 3)}
    files = {name: tiny.write(tmp_path / f"{name}.safetensors", tensors | text) for name, tensors in experts.items()}
    pretrained = tiny.write(tmp_path / "pretrained.safetensors", base | text)
    assert MappingCheckpoint(base | text, "x").unused_text.numel == 34
    store = Store(tmp_path / "store", libraries=())
    references = {name: str(path) for name, path in files.items()}
    run = execute(Recipe.build("weight_averaging", {}, [], str(pretrained), references), store, evaluate=False)
    assert run.sizes["dead"] == 34
    numel = run.table("tensors")["numel"].sum()
    assert accounts(run)["paper"]["task vector"] == 4 * (numel + 34)
    assert "heads" not in accounts(run)["deploy"]  # it was not evaluated, so nothing tells how many classes there are
    pruned = execute(Recipe.build("ties", {}, ["lwptv"], str(pretrained), references), store, evaluate=False)
    assert accounts(pruned)["paper"]["task vector"] == 4 * pruned.table("tensors")["kept_numel"].sum()


@pytest.mark.full
def test_the_library_knows_its_sizes(tmp_path):
    """Rebuild it with `make library` if it does not."""
    runs = [run for run in Store(tmp_path, libraries=(settings.LIBRARY_FOLDER,)).list_runs() if run.kind == "merge"]
    assert runs
    assert [run.title for run in runs if storage_table(run)["bytes"].isna().any()] == []


# The figure


def test_the_figure_draws_sums_of_parts():
    table = viz_tables.storage(5)
    fig = viz.draw("storage", table)
    runs = list(dict.fromkeys(table["run"]))
    sums = table.groupby(["run", "account"])["bytes"].sum() / MIB
    drawn = 0
    for account, name in DRAWN.items():
        (bars,) = (trace for trace in fig.data if trace.name == name)
        for x, y, words in zip(bars.x, bars.y, bars.text, strict=True):
            run = runs[round(float(y))]
            assert x == pytest.approx(sums[run, account], rel=1e-6)
            assert f"{sums[run, account]:.2f} MiB" in words
            drawn += 1
    assert drawn == 4 * len(runs)
    masks = next(
        words for trace in fig.data if trace.name == DRAWN["deploy"] for words in trace.text if "masks" in words
    )
    assert masks.count("<br>") == 4
    assert "MiB" in fig.layout.xaxis.title.text


def test_bars_do_not_overlap():
    fig = viz.draw("storage", viz_tables.storage(3))
    bars = [(y, trace.width) for trace in fig.data if trace.type == "bar" for y in trace.y]
    bars.sort()
    assert all(b[0] - a[0] > a[1] for a, b in pairwise(bars))
    assert all(abs(y - round(float(y))) < 0.5 for y, _ in bars)


def test_unknown_sizes_are_left_out():
    table = viz_tables.storage(3)
    table.loc[(table["run"] == "r001") & (table["account"] != "paper"), "bytes"] = np.nan
    fig = viz.draw("storage", table)
    (files,) = (trace for trace in fig.data if trace.name == DRAWN["dense"])
    assert len(files.x) == 2
    nothing = viz.draw("storage", table.assign(bytes=np.nan))
    assert len(nothing.data) == 0
    with pytest.raises(ChartError, match="does not know the account 'other'"):
        viz.draw("storage", table.assign(account="other"))


def test_what_modules_replace_is_left_out_of_the_model_at_its_own_precision():
    run = next(run for run in Store(libraries=(settings.LIBRARY_FOLDER,)).list_runs() if run.title == "WEMoE, quick")
    modules, tensors = run.table("modules"), run.table("tensors")
    mlps = modules.loc[modules["part"] == "pretrained tensors"].iloc[0]
    assert set(tensors["itemsize"]) == {2} and mlps["bytes"] == 4 * mlps["numel"]
    assert accounts(run)["deploy"]["merged model"] == run.sizes["files"] - 2 * mlps["numel"] > 0

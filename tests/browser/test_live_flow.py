"""Merging in a browser without a server: the same weights and answers as the engine's, and only the newest desk."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import random
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from browser_tab import ROOT, App, new_tab
from numpy.typing import NDArray
from playwright.sync_api import Browser

import merging
from app.live.desk import SPLIT, STAGES, build_chain, write_desk
from merging.images.benchmarks.benchmark import Benchmark, sample_indices
from merging.images.image_encoder import Encoder
from merging.models.architecture import Architecture

pytestmark = [pytest.mark.browser, pytest.mark.full]
PER_TASK = STAGES[-1]
THIRD = slice(1, None, 3)  # of the desks, with every edit and every merge; weights are compared for all
EDITS = (
    None,
    {"key": "lwptv", "prune_ratio": 0.7, "shared": True},
    {"key": "lwptv", "prune_ratio": 0.55, "shared": False},
    {"key": "magnitude", "prune_ratio": 0.71},
    {"key": "dare", "drop_rate": 0.3, "rescale": True, "seed": 1},
)
MERGES = (
    {"key": "task_arithmetic", "scaling": 0.3},
    {"key": "ties", "density": 0.2, "aggregation": "sum", "scaling": 0.3},
    {"key": "ties", "density": 0.37, "aggregation": "mean", "scaling": 1.0},
    {"key": "weight_averaging"},
)
PAGE = """<!doctype html><link rel="icon" href="data:,"><script type="module">
import { Merger, readSafetensors } from "/live/merge.js";
const load = async (name) => {
  const unpacked = (await fetch(`/desk/${name}.gz`)).body.pipeThrough(new DecompressionStream("gzip"));
  return new Response(unpacked).arrayBuffer();
};
const read = async (number) => readSafetensors(await load(`weights_${number}.safetensors`));
window.digest = async (desks) => {
  const facts = await (await fetch("/desk/desk.json")).json();
  const merger = new Merger(facts, await read(0), await load("streams.bin"));
  for (let k = 1; k <= facts.experts.length; k++) merger.addExpert(await read(k));
  const digests = [];
  for (const desk of desks) {
    const positive = (await merger.merge(desk)).map((value) => value + 0);  // -0 becomes 0
    const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", positive));
    digests.push([...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(""));
  }
  return digests;
};
window.worker = new Worker("/live/worker.js", { type: "module" });
window.messages = [];
worker.onmessage = ({ data }) => data.kind !== "progress" && messages.push({ ...data, at: performance.now() });
worker.postMessage({ kind: "open", folder: new URL("/desk/", location.href).href });
</script>"""
ANSWER = """async ([id, desk, tasks]) => {
  messages.length = 0;
  const start = performance.now();
  worker.postMessage({ kind: "mix", id, desk, tasks, features: true });
  const ended = () => messages.find(({ kind }) => kind === "finished" || kind === "failed");
  while (!ended()) await new Promise((resume) => setTimeout(resume, 20));
  if (ended().kind === "failed") throw new Error(ended().error);
  const parts = messages.filter(({ kind }) => kind === "answers");
  const bytes = new Uint8Array(await new Blob(parts.map(({ features }) => features)).arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  const merged = messages.find(({ kind }) => kind === "merged");
  const answers = parts.flatMap(({ answers }) => answers);
  return { merge: merged.ms, images: parts[7].at - start, answers, features: btoa(text) };
}"""


class Answered(NamedTuple):
    """What the engine answers at a desk: by task features (n, d) and classes (n,)."""

    features: dict[str, NDArray[np.float32]]
    classes: dict[str, NDArray[np.int64]]


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return Benchmark.load(ROOT / "sample_data")


@pytest.fixture(scope="module")
def gentle() -> Benchmark:
    """A team whose files store whole-number changes."""
    return Benchmark.load(ROOT / "sample_data/gentle")


@pytest.fixture(scope="module")
def desks(benchmark: Benchmark) -> list[dict[str, Any]]:
    """Twenty desks: every edit before every merge, with factors of experts, of sections, of both and of none."""
    source, drawn = random.Random(0), []
    for edit in EDITS:
        for merge in MERGES:
            experts = {name: round(source.uniform(-0.5, 1.5), 2) for name in benchmark.experts}
            experts[source.choice(list(experts))] = 0  # mute
            sections = {name: round(source.uniform(0, 2), 2) for name in ("embeddings", "output", "block 0", "block 3")}
            number = len(drawn)
            drawn.append(
                {
                    "edit": edit,
                    "merge": merge,
                    "experts": experts if number // 3 % 3 else {},
                    "sections": {**sections, "block 1": 0} if number % 2 else {},
                }
            )
    return drawn


def merge_desk(benchmark: Benchmark, desk: dict[str, Any]) -> tuple[dict[str, torch.Tensor], str]:
    """The engine's weights of a desk, and the digest of their float32 bytes."""
    pretrained = benchmark.open_pretrained()
    experts = {name: benchmark.models()[name].open(name) for name in benchmark.experts}
    edits, merge, params = build_chain(desk)
    weights = merging.merge(pretrained, experts, merge, params, edits, device="cpu").state_dict
    values = np.concatenate([weights[p.name].float().numpy().ravel() for p in pretrained.parameters]) + 0
    return weights, hashlib.sha256(values.tobytes()).hexdigest()


@pytest.fixture(scope="module")
def merged(benchmark: Benchmark, desks: list[dict[str, Any]]) -> list[tuple[dict[str, torch.Tensor], str]]:
    return [merge_desk(benchmark, desk) for desk in desks]


@pytest.fixture(scope="module")
def expected(benchmark: Benchmark, merged: list[tuple[dict[str, torch.Tensor], str]]) -> list[Answered]:
    """The answers of a third of the desks."""
    tower = Architecture.from_checkpoint(benchmark.open_pretrained())
    images = {key: sample(benchmark, key) for key in benchmark.experts}
    found = []
    for weights, _ in merged[THIRD]:
        encoder = Encoder(tower, {name.removeprefix("visual."): value.float() for name, value in weights.items()})
        with torch.no_grad():
            features = {key: encoder(pixels) for key, pixels in images.items()}
        classes = {key: (rows @ benchmark.load_head(key).T).argmax(1).numpy() for key, rows in features.items()}
        arrays = {key: rows.numpy() for key, rows in features.items()}
        found.append(Answered(arrays, classes))
    return found


def order(benchmark: Benchmark, task: str) -> list[int]:
    """The images of a task in the order in which they are answered."""
    count = benchmark.count_images(task, SPLIT)
    return list(dict.fromkeys(int(i) for stage in STAGES for i in sample_indices(count, stage, 0)))


def sample(benchmark: Benchmark, task: str) -> torch.Tensor:
    return benchmark.preprocess(benchmark.load_images(task, SPLIT)[0][order(benchmark, task)])


@contextlib.contextmanager
def serve_desk(chromium: Browser, benchmark: Benchmark, folder: Path, small: bool = False) -> Iterator[App]:
    """A page whose worker is ready, on a plain server of files."""
    shutil.copytree(ROOT / "app/live", folder / "live", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "desk").mkdir()
    write_desk(folder / "desk", benchmark, small)
    (folder / "index.html").write_text(PAGE, "utf-8")
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context = chromium.new_context()
        tab = new_tab(context, f"http://127.0.0.1:{server.server_port}")
        tab.page.set_default_timeout(600_000)
        tab.page.goto(tab.url + "/index.html")
        tab.page.wait_for_function("messages.length > 0")
        assert tab.page.evaluate("messages[0].error ?? ''") == ""
        yield tab
        context.close()
        server.shutdown()
    assert tab.problems == [] and tab.outside() == []


@pytest.fixture(scope="module")
def tab(chromium: Browser, benchmark: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with serve_desk(chromium, benchmark, tmp_path_factory.mktemp("live")) as tab:
        yield tab


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Keep still."""


def test_merged_weights_have_the_bits_of_the_engine(
    tab: App, desks: list[dict[str, Any]], merged: list[tuple[dict[str, torch.Tensor], str]]
) -> None:
    digests = tab.page.evaluate("desks => digest(desks)", desks)
    assert digests == [digest for _, digest in merged]


def test_weights_of_whole_number_changes_have_the_bits_of_the_engine(
    chromium: Browser, gentle: Benchmark, desks: list[dict[str, Any]], tmp_path: Path
) -> None:
    with serve_desk(chromium, gentle, tmp_path) as tab:
        facts = tab.page.evaluate("fetch('/desk/desk.json').then(r => r.json())")
        assert facts["bytes"]["weights_1.safetensors.gz"] < 2.7e6 and not facts["rounded"]
        digests = tab.page.evaluate("desks => digest(desks)", desks[THIRD])
    assert digests == [merge_desk(gentle, desk)[1] for desk in desks[THIRD]]


def test_answers_are_those_of_the_engine(
    tab: App, benchmark: Benchmark, desks: list[dict[str, Any]], expected: list[Answered]
) -> None:
    worst, same, images = compare_answers(tab, benchmark, desks, expected)
    assert worst < 2e-3 and same >= 0.995 and images <= 1


def test_answers_with_rounded_task_vectors_are_nearly_those_of_the_engine(
    chromium: Browser, benchmark: Benchmark, desks: list[dict[str, Any]], expected: list[Answered], tmp_path: Path
) -> None:
    with serve_desk(chromium, benchmark, tmp_path, small=True) as tab:
        worst, same, images = compare_answers(tab, benchmark, desks, expected)
    assert worst > 1e-4 and 0.99 <= same < 1 and images <= 2  # rounding shows


def compare_answers(
    tab: App, benchmark: Benchmark, desks: list[dict[str, Any]], expected: list[Answered]
) -> tuple[float, float, int]:
    """Over a third of the desks: the largest difference of a feature, the share of equal answers, and by how many
    images of a task the counts of right answers differ at most."""
    keys, same, count, worst, images = list(benchmark.experts), 0, 0, 0.0, 0
    tasks = tab.page.evaluate("fetch('/desk/desk.json').then(r => r.json()).then(f => f.tasks.map(t => t.key))")
    for number, (desk, one) in enumerate(zip(desks[THIRD], expected, strict=True)):
        found = tab.page.evaluate(ANSWER, [number, desk, keys])
        rows = np.frombuffer(base64.b64decode(found["features"]), np.float32).reshape(len(found["answers"]), -1)
        classes: dict[str, NDArray[np.int64]] = {key: np.full(PER_TASK, -1) for key in keys}
        for (task, image, answer), row in zip(found["answers"], rows, strict=True):
            classes[tasks[task]][image] = answer
            worst = max(worst, float(np.abs(row - one.features[tasks[task]][image]).max()))
        print(f"{desk['edit']} {desk['merge']['key']}: merge {found['merge']:.0f} ms, 8 x 16 images after "
              f"{found['images']:.0f} ms, features within {worst:.1e}")  # fmt: skip
        for key in keys:
            labels = benchmark.load_labels(key, SPLIT)[order(benchmark, key)]
            right = [int((answers == labels).sum()) for answers in (classes[key], one.classes[key])]
            images = max(images, abs(right[0] - right[1]))
            same += int((classes[key] == one.classes[key]).sum())
            count += len(labels)
    print(f"{same} of {count} answers are the same")
    assert count == len(expected) * len(keys) * PER_TASK
    return worst, same / count, images


def test_only_the_newest_desk_is_finished(tab: App, benchmark: Benchmark, desks: list[dict[str, Any]]) -> None:
    script = """async ([desk, tasks]) => {
      messages.length = 0;
      for (let id = 100; id < 110; id++) {
        worker.postMessage({ kind: "mix", id, desk, tasks });
        await new Promise((resume) => setTimeout(resume, 30));
      }
      while (!messages.some(({ kind, id }) => kind === "finished" && id === 109)) {
        await new Promise((resume) => setTimeout(resume, 20));
      }
      return messages.map(({ kind, id }) => [kind, id]);
    }"""
    messages = tab.page.evaluate(script, [desks[0], list(benchmark.experts)[:1]])
    assert [number for kind, number in messages if kind == "finished"] == [109]
    assert len([number for kind, number in messages if kind == "merged"]) < 10
    assert len([number for kind, number in messages if kind == "answers" and number == 109]) == PER_TASK // 16

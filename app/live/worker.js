// Merges and scores in a worker, so that the page never waits: it holds the weights, the network and the images.
//
// In: {kind: "open", folder} once, then {kind: "mix", id, desk} for each position of the sliders; `tasks` (keys)
// restricts the images, and `features: true` asks for features. Only the newest desk is computed; what is not finished
// when a newer one arrives is dropped.
// Out: "progress" {done, total} in bytes, "ready" {facts}, "merged" {id, ms}, "answers" {id, answers: [[task, image,
// class], ...], features} for some images at a time, "finished" {id, ms}, and "failed" {error}.
import * as ort from "./vendor/ort.wasm.bundle.min.mjs";
import { Merger, readSafetensors } from "./merge.js";

const BATCH = 16; // images that run through the network at once
let state = null, newest = null, running = false;

onmessage = async ({ data }) => {
  try {
    if (data.kind === "open") {
      state = await open(data.folder);
      postMessage({ kind: "ready", facts: state.facts });
    } else newest = data;
    if (running || state === null) return;
    running = true;
    while (newest !== null) {
      const mix = newest;
      newest = null;
      await answer(mix);
    }
    running = false;
  } catch (error) {
    running = false;
    postMessage({ kind: "failed", error: String(error) });
  }
};

/** The files of a desk, loaded and ready. */
async function open(folder) {
  const files = { done: 0, total: 0 };
  const load = (name) => loadBytes(new URL(name, folder), files);
  const facts = JSON.parse(new TextDecoder().decode(await load("desk.json")));
  const models = ["pretrained", ...facts.experts].map((name) => load(`${name}.safetensors`));
  const rest = Promise.all(["tower.onnx", "heads.safetensors", "images.bin", "streams.bin"].map(load));
  const wasm = await loadBytes(new URL("./vendor/ort-wasm-simd-threaded.wasm.gz", import.meta.url), files);
  const unpacked = new Response(wasm).body.pipeThrough(new DecompressionStream("gzip"));
  const [graph, heads, images, streams] = await rest;
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = await new Response(unpacked).arrayBuffer();
  const session = await ort.InferenceSession.create(new Uint8Array(graph), { executionProviders: ["wasm"] });
  ort.env.wasm.wasmBinary = undefined;
  const merger = new Merger(facts, readSafetensors(await models.shift()), streams);
  while (models.length) merger.addExpert(readSafetensors(await models.shift()));
  return { facts, session, merger, heads: readSafetensors(heads), images: new Uint8Array(images), order: order(facts) };
}

async function loadBytes(url, files) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} cannot be loaded (${response.status}).`);
  const parts = [];
  files.total += Number(response.headers.get("Content-Length") ?? 0);
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) return new Blob(parts).arrayBuffer();
    parts.push(value);
    files.done += value.length;
    postMessage({ kind: "progress", ...files });
  }
}

/** [task, image] in the order in which images are answered: the first stage of every task, then the next stage. */
function order({ stages, tasks }) {
  const images = [];
  stages.forEach((stop, s) => tasks.forEach(({ labels }, task) => {
    for (let i = s ? stages[s - 1] : 0; i < Math.min(stop, labels.length); i++) images.push([task, i]);
  }));
  return images;
}

/** Merge a desk and answer the images, until a newer desk arrives. */
async function answer({ id, desk, tasks = null, features = false }) {
  const start = performance.now();
  const merged = state.merger.merge(desk), weights = {};
  for (const { name, shape, start: first, size } of state.merger.tensors) {
    weights[name] = new ort.Tensor("float32", merged.subarray(first, first + size), shape);
  }
  postMessage({ kind: "merged", id, ms: performance.now() - start });
  const asked = state.order.filter(([task]) => tasks === null || tasks.includes(state.facts.tasks[task].key));
  for (let at = 0; at < asked.length; at += BATCH) {
    await new Promise((resume) => setTimeout(resume)); // lets a newer desk arrive
    if (newest !== null) return;
    const images = asked.slice(at, at + BATCH);
    const rows = (await state.session.run({ images: batch(images), ...weights })).features;
    const width = rows.dims[1];
    const answers = images.map(([task, i], row) => {
      const feature = rows.data.subarray(row * width, (row + 1) * width);
      return [task, i, nearest(state.facts.tasks[task].key, feature)];
    });
    postMessage({ kind: "answers", id, answers, features: features ? rows.data : null });
  }
  postMessage({ kind: "finished", id, ms: performance.now() - start });
}

/** Normalized pixels (n, 3, side, side) of images [[task, image], ...], with the engine's arithmetic. */
function batch(images) {
  const { side, mean, std } = state.facts.preprocess, area = side * side;
  const pixels = new Float32Array(images.length * 3 * area), f = Math.fround;
  images.forEach(([task, i], n) => {
    const first = state.facts.tasks.slice(0, task).reduce((sum, { labels }) => sum + labels.length, i) * 3 * area;
    for (let channel = 0; channel < 3; channel++) {
      const [m, s] = [f(mean[channel]), f(std[channel])], to = (n * 3 + channel) * area;
      for (let at = 0; at < area; at++) pixels[to + at] = f(f(state.images[first + 3 * at + channel] / 255) - m) / s;
    }
  });
  return new ort.Tensor("float32", pixels, [images.length, 3, side, side]);
}

/** The class whose row of the head has the largest product with a feature vector. */
function nearest(task, feature) {
  const head = state.heads[task], width = feature.length;
  let best = 0, largest = -Infinity;
  for (let row = 0; row * width < head.length; row++) {
    let product = 0;
    for (let i = 0; i < width; i++) product += head[row * width + i] * feature[i];
    if (product > largest) [best, largest] = [row, product];
  }
  return best;
}

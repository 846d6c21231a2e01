// Merges and scores in a worker, so that the page never waits: it holds the weights, the network and the images.
//
// In: {kind: "open", folder} once, then {kind: "mix", id, desk} for each position of the sliders; `tasks` (keys)
// restricts the images, and `features: true` asks for features. Only the newest desk is computed; what is not finished
// when a newer one arrives is dropped, and {kind: "stop"} drops it without a newer one. {kind: "pictures", images:
// [[task, image], ...]} asks for pixels, and {kind: "own", pixels} adds a picture to what later desks answer.
// Out: "progress" {done, total} in bytes, "ready", "pictures" {pixels: [Uint8Array, ...]}, "merged" {id, ms}, "own"
// {id, classes, one for each task}, "answers" {id, answers: [[task, image, class], ...], features} for some images at a
// time, "finished" {id, ms}, and "failed" {error}.
import * as ort from "./vendor/ort.wasm.bundle.min.mjs";
import { Merger, readSafetensors } from "./merge.js";

const CACHE = "mix"; // of files whose addresses have a digest
const BATCH = 16; // images that run through the network at once
class DownloadError extends Error {}
const LOOK_MS = 40; // between looks for a newer desk while models merge
const SILENT_MS = 700; // after which a merge is finished for a desk that is no longer the newest
let state = null, newest = null, running = false, looked = 0, answered = 0;

onmessage = async ({ data }) => {
  try {
    if (data.kind === "open") {
      state = await open((name) => self.mixUrls?.[name] ?? new URL(name, data.folder).href);
      postMessage({ kind: "ready" });
    } else if (data.kind === "pictures") {
      const pixels = data.images.map(([task, i]) => picture(task, i));
      return void postMessage({ kind: "pictures", pixels });
    } else if (data.kind === "own") return void (state.own = data.pixels);
    else newest = data;
    if (running || state === null) return;
    running = true;
    while (newest !== null) {
      const mix = newest;
      newest = null;
      if (mix.kind === "mix") await answer(mix);
    }
    running = false;
  } catch (error) {
    running = false;
    postMessage({ kind: "failed", error: String(error.message ?? error), isDownload: error instanceof DownloadError });
  }
};

/** The files of a desk, loaded and ready. */
async function open(locate) {
  const facts = await (await request(locate("desk.json"))).json();
  const sizes = Object.values(facts.bytes);
  const files = { done: 0, total: sizes.reduce((total, size) => total + size, facts.runtime.bytes) };
  const load = (name) => loadBytes(locate(`${name}.gz`), files, facts.bytes[`${name}.gz`]);
  const runtime = new URL("./vendor/ort-wasm-simd-threaded.wasm.gz", import.meta.url);
  if (runtime.protocol !== "blob:") runtime.search = facts.runtime.digest; // its digest, because the browser keeps the file
  const wasm = loadBytes(runtime.href, files, facts.runtime.bytes);
  const [graph, heads, images, streams] = await Promise.all(
    ["tower.onnx", "heads.safetensors", "images.bin", "streams.bin"].map(load),
  );
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = await wasm;
  const session = await ort.InferenceSession.create(new Uint8Array(graph), { executionProviders: ["wasm"] });
  ort.env.wasm.wasmBinary = undefined;
  const read = async (number) => readSafetensors(await load(`weights_${number}.safetensors`));
  const merger = new Merger(facts, await read(0), streams);
  for (let next = read(1), k = 1; k <= facts.experts.length; k++) { // the next file loads while one is read
    const expert = await next;
    next = k < facts.experts.length ? read(k + 1) : null;
    merger.addExpert(expert);
  }
  const data = { heads: readSafetensors(heads), images: new Uint8Array(images), order: order(facts), own: null };
  return { facts, session, merger, ...data };
}

async function request(url) {
  const response = await fetch(url);
  if (!response.ok) throw new DownloadError(`the server answers ${response.status} for ${new URL(url).pathname}.`);
  return response;
}

/** The unpacked bytes of a file that counts as `size` bytes of progress. The browser keeps it. */
async function loadBytes(url, files, size) {
  const cache = url.startsWith("http") ? await globalThis.caches?.open(CACHE).catch(() => null) : null;
  const stored = await cache?.match(url);
  const progress = (bytes) => postMessage({ kind: "progress", ...files, done: (files.done += bytes) });
  try {
    const blob = stored ? await stored.blob() : await readBody(await request(url), progress);
    if (stored) progress(size);
    const start = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
    const isPacked = start[0] === 0x1f && start[1] === 0x8b; // some servers unpack it themselves
    const unpacked = isPacked ? blob.stream().pipeThrough(new DecompressionStream("gzip")) : blob.stream();
    const bytes = await new Response(unpacked).arrayBuffer();
    if (!stored && isPacked) await cache?.put(url, new Response(blob)).catch(() => {}); // no space
    return bytes;
  } catch (error) {
    if (error instanceof TypeError) throw new DownloadError(error.message); // the network, or the end is missing
    throw error;
  }
}

/** The body of a response as a Blob. */
async function readBody(response, progress) {
  const parts = [];
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) return new Blob(parts);
    parts.push(value);
    progress(value.length);
  }
}

/** [task, image] in the order in which images are answered: two of every task, the rest of the first stage, ... */
function order({ stages, tasks }) {
  const images = [];
  [2, ...stages].forEach((stop, s, stops) => tasks.forEach(({ labels }, task) => {
    for (let i = s ? stops[s - 1] : 0; i < Math.min(stop, labels.length); i++) images.push([task, i]);
  }));
  return images;
}

const letMessagesIn = () => new Promise((resume) => setTimeout(resume));

/** Whether a merge may be given up for a newer desk: not while nothing has been answered for long. */
async function isStale() {
  if (performance.now() - looked < LOOK_MS) return false;
  await letMessagesIn();
  looked = performance.now();
  return newest !== null && looked - answered < SILENT_MS;
}

/** Merge a desk and answer the images, until a newer desk arrives. */
async function answer({ id, desk, tasks = null, features = false }) {
  const start = performance.now();
  const merged = await state.merger.merge(desk, isStale), weights = {};
  if (merged === null) return;
  for (const { name, shape, start: first, size } of state.merger.tensors) {
    weights[name] = new ort.Tensor("float32", merged.subarray(first, first + size), shape);
  }
  postMessage({ kind: "merged", id, ms: performance.now() - start });
  const run = async (pictures) => (await state.session.run({ images: batch(pictures), ...weights })).features;
  if (state.own !== null) {
    const { data } = await run([state.own]);
    postMessage({ kind: "own", id, classes: state.facts.tasks.map(({ key }) => nearest(key, data)) });
  }
  const asked = state.order.filter(([task]) => tasks === null || tasks.includes(state.facts.tasks[task].key));
  for (let at = 0; at < asked.length; at += BATCH) {
    await letMessagesIn();
    if (newest !== null && at >= 2 * BATCH) return; // the first images are answered also while a slider moves
    const images = asked.slice(at, at + BATCH);
    const rows = await run(images.map(([task, i]) => picture(task, i))), width = rows.dims[1];
    const answers = images.map(([task, i], row) => {
      const feature = rows.data.subarray(row * width, (row + 1) * width);
      return [task, i, nearest(state.facts.tasks[task].key, feature)];
    });
    postMessage({ kind: "answers", id, answers, features: features ? rows.data : null });
    answered = performance.now();
  }
  postMessage({ kind: "finished", id, ms: performance.now() - start });
}

/** The pixels (side, side, 3) of an image of a task. */
function picture(task, i) {
  const { tasks, preprocess: { side } } = state.facts, size = side * side * 3;
  const first = tasks.slice(0, task).reduce((sum, { labels }) => sum + labels.length, i) * size;
  return state.images.slice(first, first + size);
}

/** Normalized pixels (n, 3, side, side) of pictures, with the engine's arithmetic. */
function batch(pictures) {
  const { side, mean, std } = state.facts.preprocess, area = side * side;
  const pixels = new Float32Array(pictures.length * 3 * area), f = Math.fround;
  pictures.forEach((picture, n) => {
    for (let channel = 0; channel < 3; channel++) {
      const [m, s] = [f(mean[channel]), f(std[channel])], to = (n * 3 + channel) * area;
      for (let at = 0; at < area; at++) pixels[to + at] = f(f(picture[3 * at + channel] / 255) - m) / s;
    }
  });
  return new ort.Tensor("float32", pixels, [pictures.length, 3, side, side]);
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

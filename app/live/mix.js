// The desk of the page Mix: sliders, meters, a wall of images and a map of the network. `worker.js` merges and answers.
//
// Streamlit shows this page in a frame and sends {folder, link, engine}: where the desk's files are, the desk in the
// address, and the engine's accuracies of a desk that was made a run. The page sends {make: desk, count} back.
import { measure } from "./accuracies.js";
import {
  EXPERT_RANGE, NO_EDIT, PART_RANGE, effectiveDesk, findMethod, findTitle, firstDesk, listParts, readDesk, writeDesk,
} from "./desk_text.js";
import { lwptvMasks } from "./merge.js";

const WALL_SIZE = 40; // most images on the wall
const MAX_STORED = 60; // desks whose answers stay, for undo and for A and B
const MAX_UNDO = 200;
const COLORS = [ // as in the figures of viz.theme
  "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "var(--last)",
];
const SIMD = [ // a program with one instruction of SIMD
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11,
];
const framed = window.parent !== window && !window.mixUrls; // the page of static.js stands for itself

const page = {}; // the elements that change
const loaded = { facts: null, folder: "", ready: false }; // from the server
let desk = null; // the sliders, as desk_text.js describes them
let worker = null, count = 0, draws = false;
let current = null, previous = null; // records: what is answered for the present desk, and for the one before
let committed = "", linkSeen = null, engine = null, own = null;
const undo = [], records = new Map(), pins = { A: null, B: null };
let pinned = "A";

/** An element with properties and children; texts are never markup. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list" && name !== "form") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function tell(type, fields = {}) {
  if (framed) window.parent.postMessage({ isStreamlitMessage: true, type: `streamlit:${type}`, ...fields }, "*");
}

// --- Changes of the desk

/** The desk moved: answer it, and draw what follows from the sliders alone. */
function move() {
  const effective = effectiveDesk(loaded.facts, desk), name = JSON.stringify(effective);
  drawDesk();
  drawMap(effective);
  if (current?.name === name) return;
  if (current?.answered) previous = current;
  current = records.get(name) ?? newRecord(name, effective);
  records.delete(name);
  records.set(name, current); // the newest last
  for (const old of records.keys()) if (records.size > MAX_STORED) records.delete(old); // pins hold theirs
  ask();
  drawSoon();
}

/** A slider came to rest or a button was pressed: one step of undo, and the address. */
function commit() {
  const text = writeDesk(loaded.facts, desk);
  if (text === committed) return;
  undo.push(committed);
  if (undo.length > MAX_UNDO) undo.shift();
  committed = text;
  page.undo.disabled = false;
  storeAddress(text);
}

function change(edit) {
  edit();
  move();
  commit();
}

function takeDesk(text, isLink = false) {
  const { desk: found, problems } = readDesk(loaded.facts, text);
  desk = found;
  committed = writeDesk(loaded.facts, desk);
  storeAddress(committed);
  if (isLink && problems.length) notice(page.said, `The link was changed to fit: ${problems.slice(0, 5).join("; ")}.`);
  move();
}

function undoStep() {
  if (!undo.length) return;
  takeDesk(undo.pop());
  page.undo.disabled = !undo.length;
}

/** The address of the page that shows this frame, with the desk in it. */
function address(text) {
  const url = new URL(framed ? window.parent.location.href : location.href);
  if (text) url.searchParams.set("desk", text);
  else url.searchParams.delete("desk");
  return url;
}

const memory = () => `mix ${location.pathname} ${loaded.folder}`; // the key of this tab's desk

function storeAddress(text) {
  try {
    sessionStorage.setItem(memory(), text);
    const { history } = framed ? window.parent : window;
    const isFirst = text === writeDesk(loaded.facts, firstDesk(loaded.facts));
    history.replaceState(history.state, "", address(isFirst ? "" : text));
  } catch { /* a frame of another host: the link of the button has the desk */ }
}

async function copyLink() {
  let link = "";
  try {
    link = String(address(committed));
    await navigator.clipboard.writeText(link);
    notice(page.said, "The link is copied. It opens this desk.");
  } catch {
    notice(page.said, `The browser does not let this page copy. The link: ${link || committed}`);
  }
}

function makeRun() {
  const value = { make: effectiveDesk(loaded.facts, desk), count: Date.now() };
  tell("setComponentValue", { value, dataType: "json" });
}

// --- Answers

function newRecord(name, effective) {
  const tasks = loaded.facts.tasks.map(() => ({ n: 0, right: 0, answers: new Map() }));
  return { name, effective, id: 0, tasks, answered: 0, done: false, own: null, ms: 0 };
}

const wanted = () => loaded.facts.tasks.reduce((sum, { labels }) => sum + labels.length, 0);

/** Have the worker answer the present desk, unless all of it is known or nobody looks. */
function ask() {
  if (!loaded.ready || document.hidden) return;
  if (current.done && (own === null || current.own !== null)) return void worker.postMessage({ kind: "stop" });
  current.id = ++count;
  worker.postMessage({ kind: "mix", id: count, desk: current.effective, tasks: current.done ? [] : null });
}

function takeAnswers(record, answers) {
  if (record.fresh !== record.id) Object.assign(record, { fresh: record.id, answered: 0, tasks: newRecord().tasks });
  for (const [task, image, answer] of answers) {
    const one = record.tasks[task];
    one.n += 1;
    one.right += answer === loaded.facts.tasks[task].labels[image] ? 1 : 0;
    one.answers.set(image, answer);
  }
  record.answered += answers.length;
  if (record !== current) previous = record; // shown until the present desk is answered
}

function hear({ data }) {
  const record = data.id ? [...records.values()].find(({ id }) => id === data.id) : null;
  if (data.kind === "progress") showProgress(data.done, data.total);
  else if (data.kind === "ready") {
    loaded.ready = true;
    page.status.textContent = "";
    page.progress.hidden = true;
    worker.postMessage({ kind: "pictures", images: page.wallImages });
    if (own) worker.postMessage({ kind: "own", pixels: own.pixels });
    ask();
  } else if (data.kind === "pictures") {
    page.wallImages.forEach((image, i) => paint(page.tiles[i].canvas, data.pixels[i]));
  } else if (data.kind === "failed") fail(data.error, data.isDownload);
  else if (record && data.kind === "merged") record.ms = data.ms;
  else if (record && data.kind === "own") record.own = data.classes;
  else if (record && data.kind === "answers") takeAnswers(record, data.answers);
  else if (record && data.kind === "finished") {
    record.done ||= record.answered >= wanted();
    const { in: own, out } = measure(loaded.facts.tasks, record), say = (one) => (one ? percent(one.mean) : "not measured");
    page.finished.textContent = `All images are answered. In domain: ${say(own)}. Out of domain: ${say(out)}.`;
    if (pins.A === null) pin("A"); // so that there is something to compare with
  }
  drawSoon();
}

function pin(name) {
  pins[name] = { text: writeDesk(loaded.facts, desk), record: current };
  pinned = name;
  page.show[name].disabled = false;
  drawSoon();
}

// --- The worker and its failures

function explainFailure(error, isDownload) {
  if (isDownload) return `The models could not be downloaded in full: ${error.slice(0, 200)}`;
  if (/memory|allocation/i.test(error)) return "The browser has too little memory for this desk.";
  return `This browser cannot compute the desk: ${error.slice(0, 200)}.`;
}

function fail(error, isDownload = false) {
  loaded.ready = false;
  worker?.terminate();
  worker = null;
  page.progress.hidden = true;
  page.status.textContent = "";
  const again = make("button", { type: "button", onclick: start }, "Try again");
  const merge = make("button", { type: "button", onclick: makeRun }, "Preview it on Merge");
  const rest = framed ? " The sliders stay as they are, and Merge previews the same mix on the server." : "";
  page.failure.replaceChildren(explainFailure(error, isDownload) + rest, " ", again, " ", ...(framed ? [merge] : []));
  page.failure.hidden = false;
}

function start() {
  page.failure.hidden = true;
  if (!globalThis.WebAssembly?.validate(new Uint8Array(SIMD))) return fail("it does not run WebAssembly with SIMD");
  page.status.textContent = "Loading the models …";
  worker = window.mixWorker?.() ?? new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  worker.onmessage = hear;
  worker.onerror = (event) => fail(String(event.message || "The program could not be loaded"));
  worker.postMessage({ kind: "open", folder: new URL(loaded.folder, location.href).href });
}

function showProgress(done, total) {
  page.progress.hidden = false;
  page.progress.firstChild.value = done / total;
  const [part, whole] = [done, total].map((bytes) => (bytes / 1e6).toFixed(0));
  page.status.textContent = `Loading the models: ${part} of ${whole} MB, once for a visit.`;
}

/** A tab in the background stops computing; what it has not answered follows when it is looked at. */
function followTab() {
  if (!current) return;
  if (document.hidden) worker?.postMessage({ kind: "stop" });
  else ask();
  drawMeters();
}

function notice(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

// --- Drawing

/** A table of accuracies: a bar with its interval, a tick for the pinned state, and n. */
function makeMeters(rows, caption) {
  const columns = { name: "", bars: "", share: "Accuracy", n: "n", pinned: "Pinned", run: "Run" };
  const head = Object.entries(columns).map(([className, text]) => make("th", { scope: "col", className }, text));
  page.pinnedHeads.push(head[4]);
  const lines = rows.map(({ key, title, color, help = "" }) => {
    const parts = { fill: make("i", { className: "fill" }), span: make("i", { className: "span" }) };
    parts.tick = make("i", { className: "tick" });
    const cells = ["share", "n", "pinned", "run"].map((name) => (parts[name] = make("td", { className: name })));
    if (color) parts.fill.style.background = color;
    const name = make("th", { scope: "row", title: help }, title);
    const bar = make("div", { className: "bar" }, parts.fill, parts.span, parts.tick);
    const line = make("tr", { "data-row": key }, name, make("td", { className: "bars" }, bar), ...cells);
    page.meters.push({ key, line, ...parts });
    return line;
  });
  return make("table", { className: "meters" }, make("caption", {}, caption), make("tr", {}, ...head), ...lines);
}

const percent = (share) => `${(100 * share).toFixed(1)}%`;

function drawMeters() {
  const measured = (record) => measure(loaded.facts.tasks, record);
  const now = measured(current), before = measured(previous), reference = measured(pins[pinned]?.record);
  const scored = loaded.facts.tasks.map(({ key }) => engine?.scores[key] ?? [0, 0]).map(([right, n]) => ({ right, n }));
  const run = engine && JSON.stringify(engine.desk) === current.name ? measured({ tasks: scored }) : {};
  for (const meter of page.meters) {
    const { key, line, fill, span, tick, share, n, pinned: cell, run: runCell } = meter;
    const value = (meter.shown = now[key] ?? before[key] ?? meter.shown); // what is not answered yet stays, faded
    line.classList.toggle("old", !now[key]);
    fill.style.width = value ? percent(value.mean) : "0";
    span.hidden = value?.low === undefined;
    if (!span.hidden) Object.assign(span.style, { left: percent(value.low), width: percent(value.high - value.low) });
    share.textContent = value ? percent(value.mean) : "–";
    share.title = value && !span.hidden ? `95% interval: ${percent(value.low)} to ${percent(value.high)}` : "";
    n.textContent = value ? value.n : "";
    tick.hidden = !reference[key];
    cell.textContent = tick.style.left = reference[key] ? percent(reference[key].mean) : "";
    runCell.textContent = run[key] ? percent(run[key].mean) : "";
    runCell.title = run[key] ? `the engine, n = ${run[key].n}` : "";
  }
  page.root.classList.toggle("with-run", Object.keys(run).length > 0);
  for (const head of page.pinnedHeads) head.textContent = pins.A ? `Pin ${pinned}` : "";
  page.runNote.hidden = !Object.keys(run).length;
  const { answered, ms, done } = current, total = wanted();
  if (!loaded.ready) return;
  page.status.textContent = done || answered >= total
    ? `All ${total} images are answered, ${loaded.facts.stages.at(-1)} a task at most.`
    : document.hidden ? "Computing pauses while this tab is in the background." : answered ? `Merged in ${ms.toFixed(0)} ms; ${answered} of ${total} images are answered.` : "Merging …";
}

function drawWall() {
  const reference = pins[pinned]?.record, counts = { right: 0, wrong: 0, turned: 0 };
  for (const { task, image, figure, caption } of page.tiles) {
    const { classes, labels, title } = loaded.facts.tasks[task];
    const fresh = current.tasks[task].answers.get(image), answer = fresh ?? previous?.tasks[task].answers.get(image);
    figure.classList.toggle("old", fresh === undefined);
    if (answer === undefined) continue;
    const right = answer === labels[image], before = reference?.tasks[task].answers.get(image);
    const turned = before !== undefined && (before === labels[image]) !== right;
    figure.className = `${right ? "right" : "wrong"}${turned ? " turned" : ""}${fresh === undefined ? " old" : ""}`;
    caption.textContent = `${turned ? "↻" : ""}${right ? "✓" : "✗"} ${classes[answer]}`;
    figure.title = `${title}: ${classes[labels[image]]}; the mix says ${classes[answer]}${turned ? "; turned" : ""}`;
    counts[right ? "right" : "wrong"] += 1;
    counts.turned += turned ? 1 : 0;
  }
  const { right, wrong, turned } = counts, since = reference ? `, ${turned} turned since pin ${pinned}` : "";
  page.wallText.textContent = right + wrong ? `${right} of ${right + wrong} right${since}.` : "";
  const names = loaded.facts.tasks[page.ownTask.value]?.classes;
  const answer = own && current.own ? `The mix says: ${names[current.own[page.ownTask.value]]}.` : "";
  page.ownText.textContent = page.ownError || answer;
}

function drawSoon() {
  if (draws) return;
  draws = true;
  requestAnimationFrame(() => {
    draws = false;
    if (!current) return;
    drawMeters();
    drawWall();
    growFrame();
  });
}

const growFrame = () => tell("setFrameHeight", { height: Math.ceil(page.root.getBoundingClientRect().height) + 8 });

/** Pixels (side, side, 3) on a canvas. */
function paint(canvas, pixels) {
  const { side } = loaded.facts.preprocess, image = new ImageData(side, side);
  for (let at = 0; at < side * side; at++) {
    for (let channel = 0; channel < 3; channel++) image.data[4 * at + channel] = pixels[3 * at + channel];
    image.data[4 * at + 3] = 255;
  }
  Object.assign(canvas, { width: side, height: side }).getContext("2d").putImageData(image, 0, 0);
}

/** The network in the direction of the data: a column a section, a row a tensor, a lane an expert. */
function makeMap() {
  const { tensors, experts } = loaded.facts, sections = loaded.facts.parts.flatMap((part) => part.sections);
  const most = Math.max(...sections.map((name) => tensors.filter(({ section }) => section === name).length));
  const width = 12 + experts.length * 8, height = most * 9, svg = (tag, fields, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(fields)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const box = `0 0 ${sections.length * (width + 10)} ${height + 16}`;
  const label = "The network: columns are parts, rows are tensors, lanes are experts, filled by their factors.";
  const root = svg("svg", { viewBox: box, role: "img", "aria-label": label, class: "map" });
  page.lanes = [];
  sections.forEach((section, column) => {
    const own = tensors.map((tensor, index) => ({ ...tensor, index })).filter((tensor) => tensor.section === section);
    const left = column * (width + 10), text = svg("text", { x: left, y: height + 13 }, section);
    root.append(svg("line", { x1: left - 10, x2: left + width, y1: height / 2, y2: height / 2 }), text);
    own.forEach(({ name, index }, row) => experts.forEach((expert, k) => {
      const fields = { x: left + k * 8, y: row * 9 + (height - own.length * 9) / 2, width: 7, height: 8 };
      const lane = svg("rect", { ...fields, style: `--lane: ${COLORS[k % 8]}` }, svg("title", {}));
      page.lanes.push({ lane, section, index, k, expert, title: `${findTitle(loaded.facts, expert)}, ${name}` });
      root.append(lane);
    }));
  });
  return root;
}

function drawMap({ edit, experts, sections }) {
  const masks = edit?.key === "lwptv" ? lwptvMasks(loaded.facts.saliency, edit) : null;
  for (const { lane, section, index, k, expert, title } of page.lanes) {
    const isDropped = masks !== null && !masks[k][index], factor = isDropped ? 0 : experts[expert] * sections[section];
    lane.setAttribute("class", isDropped ? "dropped" : factor < 0 ? "minus" : "");
    lane.style.setProperty("fill-opacity", isDropped ? 1 : Math.min(Math.abs(factor), 1.5) / 1.5);
    lane.firstChild.textContent = `${title}: ${isDropped ? "put back to pretrained" : `factor ${factor.toFixed(2)}`}`;
  }
}

/** A row with a control for one parameter; `read` and `write` get and set its value on the desk. */
function makeControl({ kind, label, help = "", low, high, step, choices, default: first }, read, write, ...buttons) {
  const value = make("span", { className: "value" }), title = make("span", { className: "name" }, label);
  let input, show;
  if (kind === "flag") {
    input = make("input", { type: "checkbox", onchange: () => change(() => write(input.checked)) });
    show = () => (input.checked = read());
  } else if (kind === "choice") {
    const options = choices.map((choice) => make("option", { value: choice }, choice));
    input = make("select", { onchange: () => change(() => write(input.value)) }, ...options);
    show = () => (input.value = read());
  } else {
    const set = () => write(Math.round(Number(input.value) * 1e4) / 1e4); // 0.15000000000000002 is 0.15
    const reset = () => change(() => write(first));
    input = make("input", { type: "range", min: low, max: high, step, onchange: () => change(set), ondblclick: reset });
    input.addEventListener("input", () => (set(), move()));
    show = () => {
      input.value = read();
      value.textContent = kind === "integer" ? read() : read().toFixed(2).replace("-", "−");
    };
  }
  page.controls.push(show);
  return make("div", { className: `control ${kind}`, title: help }, make("label", {}, title, input, value), ...buttons);
}

/** The switches that mute a row or play it alone. */
function makeSwitches(key, label) {
  return [["mute", "M", "Mute"], ["solo", "S", "Solo"]].map(([name, letter, word]) => {
    const flip = () => change(() => desk[name].delete(key) || desk[name].add(key));
    const title = `${word} ${label}${key.startsWith("e.") ? "; averages still count who is mute" : ""}`;
    const button = make("button", { type: "button", title, onclick: flip }, letter);
    button.setAttribute("aria-label", `${word} ${label}`);
    page.controls.push(() => button.setAttribute("aria-pressed", desk[name].has(key)));
    return button;
  });
}

function makeMethods(role, list) {
  const options = list.map(({ key, title }) => make("option", { value: key }, title));
  const label = role === "edit" ? "Edit" : "Merge", summary = make("p", { className: "summary" });
  const select = make("select", { onchange: () => change(() => (desk[role] = select.value)) }, ...options);
  page.controls.push(() => {
    select.value = desk[role];
    summary.textContent = findMethod(loaded.facts, desk[role]).summary;
  });
  const rows = list.flatMap(({ key, params }) => params.map((param) => {
    const { name } = param, write = (value) => (desk.values[key][name] = value);
    const full = name === "scaling" ? { ...param, label: "All experts (λ)" } : param;
    const row = makeControl(full, () => desk.values[key][name], write);
    page.controls.push(() => (row.hidden = desk[role] !== key));
    return { name, row };
  }));
  const inChain = rows.filter(({ name }) => name !== "scaling").map(({ row }) => row);
  const control = make("div", { className: "control choice" }, make("label", {}, make("span", {}, label), select));
  const forAll = rows.filter(({ name }) => name === "scaling").map(({ row }) => row);
  return { all: forAll, chain: [control, summary, ...inChain] };
}

function makeDesk() {
  const { edits, merges, experts } = loaded.facts;
  const edit = makeMethods("edit", [NO_EDIT, ...edits]), merge = makeMethods("merge", merges);
  const expertRows = experts.map((key, k) => {
    const write = (value) => (desk.experts[key] = value), label = findTitle(loaded.facts, key);
    const help = `Factor of the task vector of ${label}. Double click: 1`;
    const bound = { ...EXPERT_RANGE, label, help };
    const row = makeControl(bound, () => desk.experts[key], write, ...makeSwitches(`e.${key}`, label));
    row.style.setProperty("--lane", COLORS[k % 8]);
    return row;
  });
  const partRows = loaded.facts.parts.map(({ key, title: label }) => {
    const bound = { ...PART_RANGE, label, help: `Factor of the merged task vector in ${label}. Double click: 1` };
    const write = (value) => (desk.parts[key] = value);
    return makeControl(bound, () => desk.parts[key], write, ...makeSwitches(`s.${key}`, label));
  });
  const group = (title, ...rows) => make("fieldset", {}, make("legend", {}, title), ...rows);
  return [
    group("Chain", ...edit.chain, ...merge.chain), group("Experts", ...merge.all, ...expertRows),
    group("Parts of the network", ...partRows),
  ];
}

function makeButtons() {
  const button = (label, onclick, title = "") => make("button", { type: "button", onclick, title }, label);
  const show = (name) => Object.assign(button(`Show ${name}`, () => {
    takeDeskByHand(pins[name].text);
    pinned = name === "A" && pins.B ? "B" : "A"; // compared with the other one
    drawSoon();
  }, `Put the desk as it was when pinned as ${name}`), { disabled: true });
  page.show = { A: show("A"), B: show("B") };
  page.undo = Object.assign(button("Undo", undoStep, "Ctrl+Z"), { disabled: true });
  const reset = button("Reset", () => takeDeskByHand(""));
  const rest = framed ? [button("Make it a run", makeRun, "Open this chain in Merge, where the engine runs it")] : [];
  const pinButtons = ["A", "B"].flatMap((name) => [button(`Pin ${name}`, () => pin(name)), page.show[name]]);
  return make("div", { className: "buttons" }, ...pinButtons, page.undo, reset, button("Copy link", copyLink), ...rest);
}

/** Another desk as one step of undo. */
function takeDeskByHand(text) {
  change(() => void (desk = readDesk(loaded.facts, text).desk));
}

function makeWall() {
  const { tasks } = loaded.facts, each = Math.max(1, Math.floor(WALL_SIZE / tasks.length));
  page.tiles = tasks.flatMap(({ labels }, task) => labels.slice(0, each).map((_, image) => {
    const canvas = make("canvas"), caption = make("figcaption");
    return { task, image, canvas, caption, figure: make("figure", {}, canvas, caption) };
  })).slice(0, WALL_SIZE);
  page.wallImages = page.tiles.map(({ task, image }) => [task, image]);
  return make("div", { className: "wall" }, ...page.tiles.map(({ figure }) => figure));
}

function makeOwn() {
  const take = async () => {
    const [file] = input.files;
    if (!file) return;
    const { readPicture } = await import("./own_picture.js");
    try {
      own = { pixels: await readPicture(file, loaded.facts.preprocess.side) };
      page.ownError = "";
      paint(canvas, own.pixels);
      canvas.hidden = false;
      for (const record of records.values()) record.own = null;
      if (loaded.ready) worker.postMessage({ kind: "own", pixels: own.pixels });
      ask();
    } catch (error) {
      page.ownError = String(error.message);
    }
    drawSoon();
  };
  const canvas = make("canvas", { hidden: true });
  const input = make("input", { type: "file", accept: "image/png,image/jpeg,image/webp", onchange: take });
  const options = loaded.facts.tasks.map(({ title }, task) => make("option", { value: task }, title));
  page.ownTask = make("select", { onchange: drawSoon }, ...options);
  page.ownText = make("span", { "aria-live": "polite" });
  const choose = make("label", {}, "Your own picture ", input);
  const among = make("label", {}, "among the classes of ", page.ownTask);
  return make("div", { className: "own" }, choose, among, canvas, page.ownText);
}

function build() {
  Object.assign(page, { controls: [], meters: [], pinnedHeads: [], ownError: "", root: document.getElementById("mix") });
  const { tasks, experts, half, rounded } = loaded.facts, lanes = experts.map((key) => [key, COLORS[experts.indexOf(key) % 8]]);
  page.status = make("p", { className: "status" }); // follows every batch; `finished` is read aloud
  page.finished = make("p", { className: "unseen", role: "status" });
  page.progress = make("p", { hidden: true }, make("progress", { max: 1, "aria-label": "Loading" }));
  page.failure = make("p", { className: "failure", role: "alert", hidden: true });
  page.said = make("p", { className: "said", role: "status", hidden: true });
  page.runNote = make("span", {}, "Run: the engine's run of this chain, on the whole choosing half.");
  const means = makeMeters([
    { key: "in", title: "In domain", help: "Mean over the tasks that have an expert" },
    { key: "out", title: "Out of domain", help: "Mean over the other tasks" },
    { key: "h", title: "H", help: "Harmonic mean of in and out of domain" },
  ], "Accuracy on a sample of the choosing half: bars for this mix, ticks for the pinned one, lines for 95% intervals");
  const byTask = makeMeters(tasks.map(({ key, title }) => (
    { key: `t.${key}`, title, color: Object.fromEntries(lanes)[key] ?? "var(--other)" }
  )), "Each task: first those with an expert, in its color");
  const precision = `Computed by this browser in float32 from ${half ? "float16" : "float32"} weights`
    + (rounded ? " and task vectors rounded to int8" : "") + (half ? "; merged weights are float16, as the engine's." : ".");
  page.wallText = make("p", { className: "summary", "aria-live": "off" });
  page.results = make("section", { className: "results", "aria-label": "Answers" },
    byTask, make("h2", {}, "Answers, image by image"), page.wallText, makeWall(), makeOwn(),
    make("h2", {}, "The network, filled with the factors"), make("div", { className: "wide" }, makeMap()));
  const top = make("section", { className: "top", "aria-label": "Averages" }, means, page.status, page.finished, page.progress);
  const sliders = make("section", { className: "desk", "aria-label": "Desk" }, ...makeDesk());
  page.root.replaceChildren(page.failure, page.said, makeButtons(), top, sliders, page.results,
    make("p", { className: "summary foot" }, precision, " ", page.runNote));
  new ResizeObserver(growFrame).observe(page.root);
  addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key !== "z") return;
    event.preventDefault();
    undoStep();
  });
  document.addEventListener("visibilitychange", followTab);
}

function drawDesk() {
  for (const show of page.controls) show();
}

// --- Start

/** Open a desk's folder, with the desk of a link, else with the one that this tab had, else with the first. */
export async function open({ folder, link = "", ...rest }) {
  engine = rest.engine ?? null;
  if (loaded.folder === folder) {
    if (desk && link !== linkSeen && link !== committed && !undo.includes(link)) { // else it is late
      undo.push(committed);
      page.undo.disabled = false;
      takeDesk(link, true);
    }
    linkSeen = link;
    return void drawSoon();
  }
  Object.assign(loaded, { folder, facts: null, ready: false });
  linkSeen = link;
  try {
    const response = await fetch(window.mixUrls?.["desk.json"] ?? `${folder}desk.json`);
    if (!response.ok) throw new Error(String(response.status));
    loaded.facts = await response.json();
  } catch {
    loaded.folder = "";
    const again = make("button", { type: "button", onclick: () => open({ folder, link, ...rest }) }, "Try again");
    document.getElementById("mix").replaceChildren("The desk could not be loaded. ", again);
    return void tell("setFrameHeight", { height: 80 });
  }
  loaded.facts.parts = listParts(loaded.facts.tensors);
  build();
  let remembered = "";
  try {
    remembered = sessionStorage.getItem(memory()) ?? "";
  } catch { /* without a memory the desk is the first one */ }
  takeDesk(link || remembered, Boolean(link));
  start();
}

window.addEventListener("message", ({ data, source }) => {
  if (!framed || source !== window.parent || data?.type !== "streamlit:render") return;
  document.documentElement.dataset.theme = data.theme?.base ?? "light";
  open(data.args);
});
tell("componentReady", { apiVersion: 1 });

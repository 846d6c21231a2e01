// The state of the desk, {edit, merge, values, experts, parts, mute, solo}, its text in the address, and what it
// merges. `facts` are those of desk.json with `parts`, which listParts gives.
const MAX_SLIDERS = 8; // for blocks; more blocks are grouped
export const EXPERT_RANGE = { kind: "real", low: -0.5, high: 1.5, step: 0.05, default: 1 };
export const PART_RANGE = { ...EXPERT_RANGE, low: 0, high: 2 };
export const NO_EDIT = { key: "", title: "No edit", params: [], summary: "Merges the task vectors as they are." };

export const findMethod = ({ edits, merges }, key) => [NO_EDIT, ...edits, ...merges].find((one) => one.key === key);
export const findTitle = ({ tasks }, key) => tasks.find((task) => task.key === key)?.title ?? key;

/** The parts of the network that have a slider: embeddings, blocks or groups of blocks, output. */
export function listParts(tensors) {
  const sections = [...new Set(tensors.map(({ section }) => section))];
  const blocks = sections.filter((name) => name.startsWith("block ")).map((name) => Number(name.slice(6)));
  blocks.sort((a, b) => a - b);
  const size = blocks.length > MAX_SLIDERS ? Math.ceil(blocks.length / 6) : 1, parts = [];
  for (let at = 0; at < blocks.length; at += size) {
    const group = blocks.slice(at, at + size), last = group[group.length - 1];
    const name = group.length > 1 ? `${group[0]}-${last}` : `${last}`;
    parts.push({ key: `b${name}`, title: `Block ${name}`, sections: group.map((number) => `block ${number}`) });
  }
  const rest = sections.filter((name) => !name.startsWith("block "));
  const others = rest.map((name) => ({ key: name, title: name[0].toUpperCase() + name.slice(1), sections: [name] }));
  return [...others.filter(({ key }) => key !== "output"), ...parts, ...others.filter(({ key }) => key === "output")];
}

export function firstDesk({ edits, merges, experts, parts: allParts }) {
  const values = {};
  for (const { key, params } of [...edits, ...merges]) {
    values[key] = Object.fromEntries(params.map((param) => [param.name, param.default]));
  }
  const ones = (keys) => Object.fromEntries(keys.map((key) => [key, 1]));
  const parts = ones(allParts.map(({ key }) => key));
  return { edit: "", merge: merges[0].key, values, experts: ones(experts), parts, mute: new Set(), solo: new Set() };
}

/** The desk in one line, without what is as at first: 'ties:density=0.1;experts:digits=0.5;mute:s.b3'. */
export function writeDesk(facts, { edit, merge, values, experts, parts, mute, solo }) {
  const escape = (text) => encodeURIComponent(String(text)).replace(/%20/g, "+");
  const join = (name, pairs) => `${name}:${pairs.map(([key, value]) => `${escape(key)}=${escape(value)}`).join(",")}`;
  const steps = [edit, merge].filter(Boolean).map((key) => {
    const changed = findMethod(facts, key).params.filter((param) => values[key][param.name] !== param.default);
    return changed.length ? join(key, changed.map(({ name }) => [name, values[key][name]])) : key;
  });
  for (const [name, factors] of [["experts", experts], ["parts", parts]]) {
    const changed = Object.entries(factors).filter(([, factor]) => factor !== 1);
    if (changed.length) steps.push(join(name, changed));
  }
  for (const [name, keys] of [["mute", mute], ["solo", solo]]) {
    if (keys.size) steps.push(`${name}:${[...keys].map(escape).join(",")}`);
  }
  return steps.join(";");
}

/** {desk, problems}: the desk of a text; what is unknown is left out, what is out of bounds is clamped. */
export function readDesk(facts, text) {
  const desk = firstDesk(facts), problems = [];
  const isKnown = (keys, key) => {
    if (!keys.includes(key)) problems.push(`“${key.slice(0, 40)}” is not on this desk`);
    return keys.includes(key);
  };
  const titles = Object.fromEntries(facts.parts.map(({ key, title }) => [key, title]));
  const switches = [...facts.experts.map((key) => `e.${key}`), ...Object.keys(titles).map((key) => `s.${key}`)];
  const names = [...facts.edits, ...facts.merges].map(({ key }) => key);
  const readFactor = (range, label) => (value) => readValue({ ...range, label }, value, problems);
  for (const step of text.split(";").filter(Boolean)) {
    const [name, list = ""] = step.split(/:(.*)/s);
    for (const [key, value] of list.split(",").filter(Boolean).map((pair) => pair.split("=").map(unescape))) {
      if (name === "experts" && isKnown(facts.experts, key)) {
        desk.experts[key] = readFactor(EXPERT_RANGE, findTitle(facts, key))(value);
      } else if (name === "parts" && isKnown(Object.keys(titles), key)) {
        desk.parts[key] = readFactor(PART_RANGE, titles[key])(value);
      } else if ((name === "mute" || name === "solo") && isKnown(switches, key)) desk[name].add(key);
      else if (names.includes(name)) {
        const params = findMethod(facts, name).params, param = params.find((one) => one.name === key);
        if (isKnown(params.map((one) => one.name), key)) desk.values[name][key] = readValue(param, value, problems);
      }
    }
    if (["experts", "parts", "mute", "solo"].includes(name) || !isKnown(names, name)) continue;
    desk[facts.edits.some(({ key }) => key === name) ? "edit" : "merge"] = name;
  }
  return { desk, problems };
}

function unescape(part) {
  try {
    return decodeURIComponent(part.replace(/\+/g, " "));
  } catch {
    return part; // it is then unknown
  }
}

/** The value of a text within a parameter's bounds; a problem says so if it was outside. */
function readValue({ kind, label, low, high, choices, default: first }, text = "", problems) {
  const value = { real: Number(text), integer: Math.round(Number(text)), flag: text === "true", choice: text }[kind];
  const isKnown = kind === "flag" ? ["true", "false"].includes(text) : kind !== "choice" || choices.includes(text);
  if (text === "" || !isKnown || Number.isNaN(value)) {
    problems.push(`${label} cannot be “${text.slice(0, 40)}”, so it is ${first}`);
    return first;
  }
  if (!(value < low || value > high)) return value;
  const clamped = value < low ? low : high;
  problems.push(`${label} ${text.slice(0, 20)} is outside ${low} to ${high}, so it is ${clamped}`.replace(/-(?=[\d.])/g, "−"));
  return clamped;
}

/** The desk as `merge.js` and the engine take it: with the factors that mute and solo leave. */
export function effectiveDesk(facts, { edit, merge, values, experts, parts, mute, solo }) {
  const factors = (prefix, table) => {
    const alone = [...solo].some((key) => key.startsWith(prefix));
    const plays = (key) => !mute.has(prefix + key) && (!alone || solo.has(prefix + key));
    return Object.fromEntries(Object.entries(table).map(([key, factor]) => [key, plays(key) ? factor : 0]));
  };
  const byPart = factors("s.", parts);
  const sections = facts.parts.flatMap(({ key, sections: names }) => names.map((name) => [name, byPart[key]]));
  return {
    edit: edit ? { key: edit, ...values[edit] } : null, merge: { key: merge, ...values[merge] },
    experts: factors("e.", experts), sections: Object.fromEntries(sections),
  };
}

// Merging task vectors in the browser: float32, in the engine's order of summation. Float16 models of up to 16 experts
// get the engine's bits; otherwise torch may add in another order, and scalars differ by an ulp.
//
// A desk is {edit, experts, merge, sections}: an edit of the task vectors (null, or lwptv, magnitude or dare with its
// parameters), a factor for each expert (left out: 1), a merge with its parameters, and a factor for each section of
// the network (left out: 1), which multiplies the merged task vector. The names of methods, parameters and sections are
// the engine's.
import { readBytes } from "./random_bytes.js";

const PIECE = 1024; // scalars that are merged at once, so that they stay in the cache
const HALF = new Float32Array(65536); // the value of every float16
for (let bits = 0; bits < 65536; bits++) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const finite = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
  const size = exponent < 31 ? finite : fraction ? NaN : Infinity;
  HALF[bits] = bits & 0x8000 ? -size : size;
}

/** {name: Float32Array, or Int8Array of codes} of a safetensors file (an ArrayBuffer) in float16, float32 or int8. */
export function readSafetensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const tensors = {};
  for (const [name, { dtype, data_offsets: [start, stop] }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const bytes = buffer.slice(8 + length + start, 8 + length + stop); // a copy, because views must be aligned
    if (dtype === "F16") tensors[name] = widen(new Uint16Array(bytes));
    else if (dtype === "F32") tensors[name] = new Float32Array(bytes);
    else if (dtype === "I8") tensors[name] = new Int8Array(bytes);
    else throw new Error(`${name} is ${dtype}; the browser reads float16, float32 and int8.`);
  }
  return tensors;
}

function widen(halves) {
  const values = new Float32Array(halves.length);
  for (let i = 0; i < values.length; i++) values[i] = HALF[halves[i]];
  return values;
}

/** Round float32 values to float16 in place, to the nearest, halves to even, as the engine stores a float16 model. */
export function roundToHalf(values) {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  for (let i = 0; i < values.length; i++) {
    const word = bits[i];
    if ((word & 0x7fffffff) >= 0x38800000) bits[i] = (word + 0xfff + ((word >>> 13) & 1)) & 0xffffe000;
    else values[i] = values[i] < 0 ? -(Math.fround(0.5 - values[i]) - 0.5) : Math.fround(0.5 + values[i]) - 0.5;
  }
}

/** The masks [expert][tensor] of LwPTV, from the engine's saliency scores [expert][tensor] (LwPTV Eq. 6 and 7). */
export function lwptvMasks(saliency, { prune_ratio: ratio, shared = true }) {
  const index = Math.floor(saliency[0].length * ratio + 1e-9);
  const own = saliency.map((scores) => {
    const sorted = Float64Array.from(scores).sort();
    const limit = ratio === 0 ? -Infinity : index >= sorted.length ? Infinity : sorted[index];
    return scores.map((score) => score > limit);
  });
  return shared ? own.map((_, k) => own[k].map((_, t) => own.some((mask) => mask[t]))) : own;
}

/** 0-based rank of the smallest scalar that a trim keeps: of d scalars, int(d·ρ) + 1 and their ties. */
function trimRank(numel, density) {
  return Math.max(numel - Math.trunc(numel * density) - 1, 0);
}

/** The bin in which a rank falls, and the rank within it. */
function findBin(counts, rank) {
  let bin = 0;
  for (; rank >= counts[bin]; bin++) rank -= counts[bin];
  return [bin, rank];
}

/** 1 - η without the rounding error of the subtraction, for ratios with at most six decimals. */
function densityOf(ratio) {
  const nearby = Math.round((1 - ratio) * 1e6) / 1e6;
  return Math.abs(nearby - (1 - ratio)) <= Number.EPSILON ? nearby : 1 - ratio;
}

export class Merger {
  /**
   * `facts` are of the file desk.json: experts, tensors (name, shape, section), half, saliency. `pretrained` is what
   * readSafetensors returns; `streams` (an ArrayBuffer) has the random streams of DARE. The experts follow by addExpert.
   */
  constructor(facts, pretrained, streams) {
    this.facts = facts;
    this.streams = streams;
    this.tensors = [];
    this.numel = 0;
    for (const { name, shape, section } of facts.tensors) {
      const size = pretrained[name].length;
      this.tensors.push({ name, shape, section, start: this.numel, size });
      this.numel += size;
    }
    this.pretrained = new Float32Array(this.numel);
    for (const { name, start } of this.tensors) this.pretrained.set(pretrained[name], start);
    this.vectors = []; // the task vector of each expert
    this.rows = new Float32Array(facts.experts.length * PIECE); // the task vectors of a piece, one row an expert
    this.combined = { name: "", values: null }; // the last merged task vector before its scaling
    this.votes = 0; // the sum of the signs that TIES elects
    this.thresholds = new Map(); // by edit, expert and rank; emptied when it grows large
    this.upperCounts = new Map(); // by edit and expert, of the upper bits; likewise
    this.random = {}; // the random bytes of the last seed
  }

  /**
   * Take the next expert, in the order of the facts; one at a time, so that few are in memory. It has weights, or codes
   * of its changes with one scale for each row, under the name with ".scales".
   */
  addExpert(expert) {
    const vector = new Float32Array(this.numel), f = Math.fround;
    for (const { name, start, size } of this.tensors) {
      const values = expert[name], scales = expert[`${name}.scales`], columns = scales ? size / scales.length : 0;
      for (let i = 0; i < size; i++) {
        const first = this.pretrained[start + i];
        const value = scales ? f(first + f(values[i] * scales[Math.trunc(i / columns)])) : values[i];
        vector[start + i] = value - first;
      }
    }
    this.vectors.push(vector);
  }

  /**
   * The merged weights (numel,), tensor after tensor in the order of `this.tensors`; null once `isStale` resolves to true
   * before the experts are combined. Experts are combined anew only if more than scaling and sections changed.
   */
  async merge({ edit = null, experts = {}, merge, sections = {} }, isStale = async () => false) {
    const { scaling, ...combination } = merge, name = JSON.stringify([edit, experts, combination]);
    if (this.combined.name !== name) {
      const values = await this.#combine(edit, experts, combination, isStale);
      if (values === null) return null;
      this.combined = { name, values };
    }
    const merged = new Float32Array(this.numel), { values } = this.combined, { pretrained } = this;
    const factor = Math.fround(scaling ?? 1), f = Math.fround;
    for (const { section, start, size } of this.tensors) {
      const part = f(sections[section] ?? 1);
      for (let i = start; i < start + size; i++) merged[i] = pretrained[i] + f(part * f(factor * values[i]));
    }
    if (this.facts.half) roundToHalf(merged);
    return merged;
  }

  /** The merged task vector (numel,) before the scaling, or null. */
  async #combine(edit, experts, merge, isStale) {
    const values = new Float32Array(this.numel), prepared = this.#prepare(edit), tied = [];
    const factors = this.facts.experts.map((name) => Math.fround(experts[name] ?? 1));
    const trims = merge.key === "ties" ? this.#trims(prepared, factors, merge.density) : null;
    const write = (t, start, size, majority) => {
      const first = this.tensors[t].start + start, change = values.subarray(first, first + size);
      factors.forEach((factor, k) => this.#fill(prepared, k, t, start, size, factor));
      if (trims) return this.#elect(change, trims, merge.aggregation === "mean", majority);
      this.#add(change, merge.key === "weight_averaging");
      return false;
    };
    this.votes = 0;
    for (const [t, { size: whole }] of this.tensors.entries()) {
      if (await isStale()) return null;
      for (let start = 0; start < whole; start += PIECE) {
        const size = Math.min(PIECE, whole - start);
        if (write(t, start, size, 0)) tied.push([t, start, size]);
      }
    }
    const majority = Math.sign(this.votes); // of all scalars, which decides where experts are exactly tied
    for (const piece of tied) write(...piece, majority);
    return values;
  }

  /** Write the sum of the rows, or their mean, into the change. */
  #add(change, mean) {
    const { rows } = this, size = change.length, count = this.vectors.length;
    change.set(rows.subarray(0, size));
    for (let k = 1; k < count; k++) {
      const row = k * PIECE;
      for (let i = 0; i < size; i++) change[i] += rows[row + i];
    }
    if (mean) for (let i = 0; i < size; i++) change[i] /= count;
  }

  /**
   * Write the sum or mean of what agrees with the elected sign into the change (TIES). Scalars below an expert's
   * threshold do not count. Returns whether kept scalars tie; they get the sign `majority`.
   */
  #elect(change, thresholds, mean, majority) {
    const { rows } = this, size = change.length, count = this.vectors.length, f = Math.fround;
    let isTied = false, votes = 0;
    for (let i = 0; i < size; i++) {
      let sum = f(0), plus = f(0), minus = f(0), pluses = 0, minuses = 0;
      for (let k = 0, at = i; k < count; k++, at += PIECE) {
        const value = rows[at];
        if (Math.abs(value) < thresholds[k]) continue;
        sum = f(sum + value);
        if (value > 0) {
          plus = f(plus + value);
          pluses += 1;
        } else if (value < 0) {
          minus = f(minus + value);
          minuses += 1;
        }
      }
      const vote = sum > 0 ? 1 : sum < 0 ? -1 : 0, sign = vote || majority;
      votes += vote;
      if (vote === 0 && plus !== 0) isTied = true;
      const elected = sign > 0 ? plus : sign < 0 ? minus : 0;
      change[i] = mean ? elected / Math.max(sign > 0 ? pluses : minuses, 1) : elected;
    }
    this.votes += votes;
    return isTied;
  }

  /** The edit with what it needs from all tensors: masks, thresholds or random bytes. */
  #prepare(edit) {
    if (edit === null) return { key: "" };
    if (edit.key === "lwptv") return { ...edit, masks: lwptvMasks(this.facts.saliency, edit) };
    if (edit.key === "magnitude") {
      if (edit.prune_ratio === 0) return { key: "" };
      const rank = trimRank(this.numel, densityOf(edit.prune_ratio));
      const whole = edit.prune_ratio === 1;
      return { ...edit, limits: this.vectors.map((_, k) => (whole ? Infinity : this.#kth({ key: "" }, k, rank))) };
    }
    if (edit.key !== "dare") throw new Error(`The browser does not know the edit ${edit.key}.`);
    if (edit.drop_rate === 0) return { key: "" };
    const rescale = edit.rescale !== false && edit.drop_rate < 1 ? Math.fround(1 / (1 - edit.drop_rate)) : 1;
    if (this.random.seed !== edit.seed) {
      const bytes = readBytes(this.streams, edit.seed, this.vectors.length, this.tensors, this.numel);
      this.random = { seed: edit.seed, ...bytes };
    }
    return { ...edit, rescale, random: this.random };
  }

  /** Write one expert's edited task vector times its factor into its row; `start` counts in the tensor. */
  #fill(edit, k, t, start, size, factor) {
    const { start: offset } = this.tensors[t], first = offset + start;
    const row = this.rows.subarray(k * PIECE, k * PIECE + size);
    if (factor === 0 || (edit.masks && !edit.masks[k][t])) return void row.fill(0);
    row.set(this.vectors[k].subarray(first, first + size));
    if (edit.limits) {
      const limit = edit.limits[k];
      for (let i = 0; i < size; i++) if (Math.abs(row[i]) < limit) row[i] = 0;
    }
    if (edit.random) this.#drop(edit, k, t, first, row);
    if (factor !== 1) for (let i = 0; i < size; i++) row[i] *= factor;
  }

  /** Drop the scalars whose two random bytes do not reach the limit, and rescale the others. */
  #drop({ random, drop_rate: rate, rescale }, k, t, first, row) {
    const limit = Math.trunc(rate * 65536 + random.roundings[k][t]), high = limit >> 8, low = limit & 255;
    const firstBytes = random.first[k], secondBytes = random.second[k];
    for (let i = 0; i < row.length; i++) {
      const byte = firstBytes[first + i];
      row[i] *= byte > high || (byte === high && secondBytes[first + i] >= low) ? rescale : 0;
    }
  }

  /** The trim thresholds of the edited task vectors times their factors; multiplying does not change the order. */
  #trims(edit, factors, density) {
    const rank = trimRank(this.numel, density);
    if (density === 1) return new Float32Array(factors.length);
    return Float32Array.from(factors, (factor, k) => Math.abs(factor) * this.#kth(edit, k, rank));
  }

  /** The absolute value of this rank among an expert's edited scalars, exact: first its upper bits, then the lower. */
  #kth(edit, k, rank) {
    if (edit.limits) { // what is pruned is zero, and the rest keeps its order
      const whole = this.#kth({ key: "" }, k, rank);
      return whole < edit.limits[k] ? 0 : whole;
    }
    const { random, masks, ...plain } = edit;
    const name = JSON.stringify([plain, k, rank]), vector = JSON.stringify([plain, k]);
    if (this.upperCounts.size > 64) this.upperCounts.clear();
    if (!this.upperCounts.has(vector)) this.upperCounts.set(vector, this.#count(edit, k));
    if (this.thresholds.size > 1000) this.thresholds.clear();
    if (!this.thresholds.has(name)) {
      const [upper, left] = findBin(this.upperCounts.get(vector), rank);
      const [lower] = findBin(this.#count(edit, k, upper), left);
      this.thresholds.set(name, new Float32Array(new Uint32Array([(upper << 15) | lower]).buffer)[0]);
    }
    return this.thresholds.get(name);
  }

  /** Counts of an expert's edited scalars by the upper bits of their size, or by the lower ones below `upper`. */
  #count(edit, k, upper = -1) {
    const counts = new Uint32Array(65536), words = new Uint32Array(this.rows.buffer, k * PIECE * 4, PIECE);
    this.tensors.forEach(({ size: whole }, t) => {
      for (let start = 0; start < whole; start += PIECE) {
        const size = Math.min(PIECE, whole - start);
        this.#fill(edit, k, t, start, size, 1);
        if (upper < 0) for (let i = 0; i < size; i++) counts[(words[i] & 0x7fffffff) >>> 15]++;
        else for (let i = 0; i < size; i++) if ((words[i] & 0x7fffffff) >>> 15 === upper) counts[words[i] & 0x7fff]++;
      }
    });
    return counts;
  }
}

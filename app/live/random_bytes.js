// The random bytes of the engine's masks: PCG64-DXSM from states that the engine hashed for each expert's tensor.
const MULTIPLIER = 0xda942042e4dd58b5n, MASK = (1n << 128n) - 1n;
const SECOND_BYTES_START = 1n << 64n; // the word of the stream at which the scalars' second bytes begin
const STATE_BYTES = 38; // of a stream in the table: state (16), increment (16), rounding (6), lowest byte first

/**
 * {first, second, roundings}: two random bytes for each scalar, [expert] -> Uint8Array(numel), and the number in [0, 1)
 * that rounds the limit, [expert][tensor]. `streams` has the states by seed, expert and tensor.
 */
export function readBytes(streams, seed, experts, tensors, numel) {
  const view = new DataView(streams), first = [], second = [], roundings = [];
  const end = (seed + 1) * experts * tensors.length * STATE_BYTES;
  if (end > streams.byteLength) throw new Error(`There is no seed ${seed} in the table.`);
  for (let k = 0; k < experts; k++) {
    first.push(new Uint8Array(numel));
    second.push(new Uint8Array(numel));
    roundings.push([]);
    tensors.forEach(({ start, size }, t) => {
      const at = ((seed * experts + k) * tensors.length + t) * STATE_BYTES;
      const state = whole(view, at), increment = whole(view, at + 16);
      roundings[k].push((view.getUint32(at + 32, true) + view.getUint16(at + 36, true) * 2 ** 32) / 2 ** 48);
      generate(state, increment, first[k].subarray(start, start + size));
      generate(advance(state, increment, SECOND_BYTES_START), increment, second[k].subarray(start, start + size));
    });
  }
  return { first, second, roundings };
}

function whole(view, at) {
  return view.getBigUint64(at, true) | (view.getBigUint64(at + 8, true) << 64n);
}

/** The state after `steps` steps (F. Brown, "Random number generation with arbitrary strides", 1994). */
function advance(state, increment, steps) {
  let factor = 1n, sum = 0n, stepFactor = MULTIPLIER, stepSum = increment;
  for (; steps > 0n; steps >>= 1n) {
    if (steps & 1n) {
      factor = (factor * stepFactor) & MASK;
      sum = (sum * stepFactor + stepSum) & MASK;
    }
    stepSum = ((stepFactor + 1n) * stepSum) & MASK;
    stepFactor = (stepFactor * stepFactor) & MASK;
  }
  return (factor * state + sum) & MASK;
}

/** Fill `bytes` with the generator's words. Numbers of 128 bits are eight digits of 16 bits, lowest first. */
function generate(state, increment, bytes) {
  const digits = (value, count) => Array.from({ length: count }, (_, i) => Number((value >> BigInt(16 * i)) & 0xffffn));
  const multiplier = digits(MULTIPLIER, 4), added = digits(increment, 8);
  const now = digits(state, 8), next = new Array(8).fill(0), high = new Array(4).fill(0), low = new Array(4).fill(0);
  const product = new Array(4).fill(0);
  for (let at = 0; at < bytes.length; at += 8) {
    for (let i = 0; i < 4; i++) {
      low[i] = now[i];
      high[i] = now[i + 4];
    }
    low[0] |= 1;
    high[0] ^= high[2]; // high ^= high >> 32
    high[1] ^= high[3];
    multiply(high, multiplier, product);
    product[0] ^= product[3]; // ^= >> 48
    multiply(product, low, high);
    for (let i = 0; i < 8 && at + i < bytes.length; i++) bytes[at + i] = high[i >> 1] >>> (8 * (i & 1));
    let carry = 0;
    for (let i = 0; i < 8; i++) {
      let sum = carry + added[i];
      for (let j = Math.max(0, i - 3); j <= i; j++) sum += now[j] * multiplier[i - j]; // below 2 ** 35
      next[i] = sum & 0xffff;
      carry = Math.floor(sum / 65536);
    }
    for (let i = 0; i < 8; i++) now[i] = next[i];
  }
}

/** The low 64 bits of a product of two numbers of four digits. */
function multiply(a, b, product) {
  let carry = 0;
  for (let i = 0; i < 4; i++) {
    let sum = carry;
    for (let j = 0; j <= i; j++) sum += a[j] * b[i - j];
    product[i] = sum & 0xffff;
    carry = Math.floor(sum / 65536);
  }
}

// A user's picture, resized and cropped as the engine does: PIL's bicubic filter, which smooths when it shrinks.
// Versions of PIL filter rows or columns first, so that values from 0 to 255 may differ by 2.
const MAX_PIXELS = 25_000_000;
const BITS = 22; // fraction of PIL's integer weights

/** The pixels (side, side, 3) of a file. Throws an Error whose message is for people. */
export async function readPicture(file, side) {
  const asStored = { imageOrientation: "none", colorSpaceConversion: "none", premultiplyAlpha: "none" };
  const bitmap = await createImageBitmap(file, asStored).catch(() => null);
  if (bitmap === null) throw new Error("The browser cannot read this file as a picture.");
  const { width, height } = bitmap, long = Math.trunc((side * Math.max(width, height)) / Math.min(width, height));
  if (width * height > MAX_PIXELS || long * side > MAX_PIXELS) {
    throw new Error(`A picture has at most ${MAX_PIXELS / 1e6} million pixels; this one is ${width} × ${height}.`);
  }
  const context = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const target = width <= height ? [side, long] : [long, side];
  const { data } = context.getImageData(0, 0, width, height);
  const pixels = resize(data, width, height, ...target);
  const [left, top] = target.map((length) => even((length - side) / 2));
  const cropped = new Uint8Array(side * side * 3);
  for (let y = 0; y < side; y++) {
    const from = 3 * ((y + top) * target[0] + left);
    cropped.set(pixels.subarray(from, from + 3 * side), 3 * y * side);
  }
  return cropped;
}

/** Half of an odd number is rounded to the even neighbor, as Python does. */
const even = (value) => (value % 1 === 0.5 ? 2 * Math.round(value / 2) : Math.round(value));

/** RGB pixels (to.height, to.width, 3) of RGBA pixels: first along rows, then along columns (Pillow, Resample.c). */
export function resize(rgba, width, height, toWidth, toHeight) {
  const rgb = new Uint8Array(width * height * 3);
  for (let at = 0; at < width * height; at++) for (let c = 0; c < 3; c++) rgb[3 * at + c] = rgba[4 * at + c];
  const rows = width === toWidth ? rgb : filter(rgb, weigh(width, toWidth), height, 3, 3 * width, 3 * toWidth);
  if (height === toHeight) return rows;
  return filter(rows, weigh(height, toHeight), toWidth, 3 * toWidth, 3, 3);
}

/** Filter along one axis: `step` is from one pixel to the next along it, and from one line to the next across it. */
function filter(pixels, weights, lines, step, fromLine, toLine) {
  const filtered = new Uint8Array(lines * weights.length * 3);
  for (let line = 0; line < lines; line++) {
    weights.forEach(({ first, factors }, to) => {
      for (let c = 0; c < 3; c++) {
        let sum = 1 << (BITS - 1);
        for (let i = 0; i < factors.length; i++) sum += pixels[line * fromLine + (first + i) * step + c] * factors[i];
        filtered[line * toLine + to * step + c] = Math.min(255, Math.max(0, sum >> BITS));
      }
    });
  }
  return filtered;
}

/** For each pixel of the result: the first pixel that it is made of, and their whole-number weights. */
function weigh(from, to) {
  const scale = from / to, wide = Math.max(scale, 1), support = 2 * wide;
  return Array.from({ length: to }, (_, i) => {
    const center = (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(center - support + 0.5));
    const end = Math.min(from, Math.trunc(center + support + 0.5));
    const values = Array.from({ length: end - first }, (_, j) => cubic((j + first - center + 0.5) / wide));
    const total = values.reduce((sum, value) => sum + value, 0);
    const toWhole = (value) => Math.trunc((value / total) * 2 ** BITS + (value < 0 ? -0.5 : 0.5));
    return { first, factors: values.map(toWhole) };
  });
}

/** The bicubic filter with a = −0.5. */
function cubic(at) {
  const x = Math.abs(at);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  return x < 2 ? -0.5 * (((x - 5) * x + 8) * x - 4) : 0;
}

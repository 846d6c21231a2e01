// Writes a picture that plotly drew as PDF with lines, areas and text as such. It knows the parts of SVG that plotly
// uses: paths, rectangles, circles, text, images, clipping by paths, and hatching. Letters are set in Helvetica and
// Symbol, which every reader of PDF has; text in other scripts becomes a picture.

const POINTS = 0.75; // of a pixel
const CURVE = 0.5522847498; // of the radius: the control points of a quarter of a circle
const FONTS = { H: "Helvetica", B: "Helvetica-Bold", O: "Helvetica-Oblique", S: "Symbol" };
// widths of Helvetica's letters from the space to the tilde, in thousandths of the font size
const WIDTHS = [
  278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556, 556,
  556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
  667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556,
  556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];
const STEPS = 128; // of a gradient
const BOLD = 1.06; // a bold letter's width, relative to the same letter's
// codes of characters above 255 in the encoding of western texts, and of those in the font Symbol
const WESTERN = { "€": 128, "…": 133, "†": 134, "‡": 135, "‰": 137, "‘": 145, "’": 146, "“": 147, "”": 148, "•": 149, "–": 150, "—": 151, "™": 153 };
const SYMBOL = { "−": 45, "≤": 163, "≥": 179, "∞": 165, "←": 172, "↑": 173, "→": 174, "↓": 175, "≠": 185, "≈": 187, "√": 214, "∑": 229, "∈": 206, "⋅": 215 };
"ABGDEZHQIKLMNXOPRSTUFCYW".split("").forEach((letter, place) => {
  const greek = 0x391 + place + (place > 16 ? 1 : 0); // there is no capital final sigma
  SYMBOL[String.fromCharCode(greek)] = letter.charCodeAt(0);
  SYMBOL[String.fromCharCode(greek + 32)] = letter.toLowerCase().charCodeAt(0);
});
const LINK = /url\(["']?[^#"')]*#([^"')]+)/; // to a clip path or a hatching
const RAISED = { "⁰": "0", "⁴": "4", "⁵": "5", "⁶": "6", "⁷": "7", "⁸": "8", "⁹": "9", "⁺": "+", "⁻": "–", "ⁿ": "n" };
const LOWERED = Object.fromEntries([..."0123456789"].map((digit) => [String.fromCharCode(0x2080 + Number(digit)), digit]));

async function pdfFile(svg, data) {
  const stage = document.createElement("div");
  stage.style.cssText = "position:fixed;left:-99999px;top:0;visibility:visible";
  stage.append(document.importNode(svg, true));
  document.body.append(stage); // the browser lays out text only in a document
  try {
    const page = new PdfPage(stage.firstChild);
    await page.draw(stage.firstChild, []);
    return await page.file(data.title);
  } finally {
    stage.remove();
  }
}

const round = (value) => String(Math.round(value * 1000) / 1000);

class PdfPage {
  constructor(root) {
    this.root = root;
    this.width = Number(root.getAttribute("width"));
    this.height = Number(root.getAttribute("height"));
    this.home = root.getScreenCTM().inverse();
    this.content = [`${POINTS} 0 0 ${-POINTS} 0 ${round(this.height * POINTS)} cm`];
    this.alphas = new Map(); // pair of opacities -> name
    this.images = [];
  }

  /** Draw an element and all inside it, within the clip paths of those that it is in. */
  async draw(element, clips) {
    const style = getComputedStyle(element);
    if (style.display === "none" || ["defs", "title", "desc", "clipPath", "pattern", "style"].includes(element.nodeName)) return;
    const clip = LINK.exec(style.clipPath || element.getAttribute("clip-path") || "");
    const path = clip && this.clipPath(clip[1], element);
    const inside = path ? [...clips, path] : clips;
    if (style.visibility !== "hidden") {
      if (element.nodeName === "text") await this.text(element, inside);
      else if (element.nodeName === "image") await this.image(element, inside);
      else if (outline(element)) await this.shape(element, style, inside);
    }
    if (element.nodeName !== "text") for (const child of element.children) await this.draw(child, inside);
  }

  /** The matrix from an element's coordinates to the picture's. */
  matrix(element) {
    return this.home.multiply(element.getScreenCTM());
  }

  clipPath(id, element) {
    const shapes = [...(this.root.querySelector(`#${CSS.escape(id)}`)?.children ?? [])];
    return shapes.map((shape) => placed(outline(shape) ?? [], this.matrix(element))).join(" ");
  }

  clipped(clips, operators) {
    this.content.push("q", ...clips.map((path) => `${path || "0 0 m"} W n`), ...operators, "Q");
  }

  alpha(fill, stroke) {
    const key = `${round(fill)} ${round(stroke)}`;
    if (!this.alphas.has(key)) this.alphas.set(key, `A${this.alphas.size}`);
    return `/${this.alphas.get(key)} gs`;
  }

  async shape(element, style, clips) {
    const matrix = this.matrix(element);
    const path = placed(outline(element), matrix);
    const hatch = LINK.exec(style.fill);
    const paint = hatch && this.root.querySelector(`#${CSS.escape(hatch[1])}`);
    if (paint?.nodeName === "pattern") this.hatched(paint, element, [...clips, path]);
    if (paint?.nodeName === "linearGradient") this.graded(paint, element, [...clips, path]);
    const opacity = opacities(element);
    const fill = hatch ? null : color(style.fill, opacity * style.fillOpacity);
    const stroke = color(style.stroke, opacity * style.strokeOpacity);
    const fixed = style.vectorEffect === "non-scaling-stroke";
    const width = parseFloat(style.strokeWidth) * (fixed ? 1 : scale(matrix));
    const lined = stroke && width > 0;
    if (!path || (!fill && !lined)) return;
    const operators = [this.alpha(fill ? fill.alpha : 1, lined ? stroke.alpha : 1)];
    if (fill) operators.push(`${fill.rgb} rg`);
    if (lined) {
      const dashes = (style.strokeDasharray.match(/[\d.]+/g) ?? []).map(Number);
      const caps = { butt: 0, round: 1, square: 2 }[style.strokeLinecap] ?? 0;
      const joins = { miter: 0, round: 1, bevel: 2 }[style.strokeLinejoin] ?? 0;
      operators.push(`${stroke.rgb} RG ${round(width)} w ${caps} J ${joins} j [${dashes.map(round).join(" ")}] 0 d`);
    }
    operators.push(`${path} ${fill && lined ? "B" : fill ? "f" : "S"}`);
    this.clipped(clips, operators);
  }

  /** Repeat the tile of a hatching over an element. */
  hatched(pattern, element, clips) {
    const [width, height] = ["width", "height"].map((name) => Number(pattern.getAttribute(name)));
    const turned = pattern.patternTransform.baseVal.consolidate()?.matrix ?? this.root.createSVGMatrix();
    const box = element.getBBox();
    const matrix = this.matrix(element).multiply(turned);
    const tiles = [];
    for (let x = Math.floor(box.x / width) - 1; x * width <= box.x + box.width + width; x++)
      for (let y = Math.floor(box.y / height) - 1; y * height <= box.y + box.height + height; y++)
        tiles.push(matrix.translate(x * width, y * height));
    for (const shape of pattern.children) {
      const style = getComputedStyle(shape);
      const opacity = opacities(element);
      const fill = color(style.fill, opacity * style.fillOpacity * style.opacity);
      const stroke = color(style.stroke, opacity * style.strokeOpacity * style.opacity);
      const paths = tiles.map((tile) => placed(outline(shape) ?? [], tile)).join(" ");
      const operators = [this.alpha(fill ? fill.alpha : 1, stroke ? stroke.alpha : 1)];
      if (fill) operators.push(`${fill.rgb} rg ${paths} f`);
      if (stroke) operators.push(`${stroke.rgb} RG ${round(parseFloat(style.strokeWidth) * scale(matrix))} w ${paths} S`);
      this.clipped(clips, operators);
    }
  }

  /** Fill an element's box with colors along a line, in steps; each reaches to the end, so that no seams are seen. */
  graded(gradient, element, clips) {
    const [x1, y1, x2, y2] = ["x1", "y1", "x2", "y2"].map((name) => gradient[name].baseVal.valueInSpecifiedUnits / (gradient[name].baseVal.unitType === 2 ? 100 : 1));
    const stops = [...gradient.children].map((stop) => [stop.offset.baseVal, getComputedStyle(stop).stopColor]);
    const [box, matrix] = [element.getBBox(), this.matrix(element)];
    const at = (part, from, to, start, size) => start + size * (from + part * (to - from));
    const operators = [this.alpha(opacities(element), 1)];
    for (let step = 0; step < STEPS; step++) {
      const [fromX, fromY] = [at(step / STEPS, x1, x2, box.x, box.width), at(step / STEPS, y1, y2, box.y, box.height)];
      const [toX, toY] = [at(1, x1, x2, box.x, box.width), at(1, y1, y2, box.y, box.height)];
      const [left, right] = x1 === x2 ? [box.x, box.x + box.width] : [fromX, toX];
      const [top, bottom] = y1 === y2 ? [box.y, box.y + box.height] : [fromY, toY];
      const corners = [["m", left, top], ["l", right, top], ["l", right, bottom], ["l", left, bottom], ["h"]];
      operators.push(`${between(stops, (step + 0.5) / STEPS)} rg ${placed(corners, matrix)} f`);
    }
    this.clipped(clips, operators);
  }

  async image(element, clips) {
    const picture = new Image();
    picture.src = element.getAttribute("href") ?? element.getAttributeNS("http://www.w3.org/1999/xlink", "href");
    await picture.decode();
    const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => element[name].baseVal.value);
    const matrix = this.matrix(element).translate(x, y + height).scaleNonUniform(width, -height);
    this.picture(picture, picture.naturalWidth, picture.naturalHeight, matrix, clips, opacities(element));
  }

  /** Place pixels on the unit square of ``matrix``, whose second axis points up. */
  picture(source, width, height, matrix, clips, opacity) {
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    const pen = canvas.getContext("2d");
    pen.drawImage(source, 0, 0);
    this.images.push(pen.getImageData(0, 0, width, height));
    const values = ["a", "b", "c", "d", "e", "f"].map((name) => round(matrix[name])).join(" ");
    this.clipped(clips, [this.alpha(opacity, 1), `${values} cm /I${this.images.length - 1} Do`]);
  }

  /** Set a text run by run, each where the browser has put it. */
  async text(element, clips) {
    let place = 0;
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      for (const run of runs(node.data)) this.run(element, node.parentNode, place + run.start, run, clips);
      place += node.data.length;
    }
  }

  run(element, parent, first, run, clips) {
    if (!run.text.trim() || first + run.text.length > element.getNumberOfChars()) return;
    const style = getComputedStyle(parent);
    const fill = color(style.fill, opacities(parent) * style.fillOpacity);
    const size = parseFloat(style.fontSize);
    const from = element.getStartPositionOfChar(first);
    const to = element.getEndPositionOfChar(first + run.text.length - 1);
    const matrix = this.matrix(element).translate(from.x, from.y).rotate(element.getRotationOfChar(first));
    const width = Math.hypot(to.x - from.x, to.y - from.y);
    if (!fill) return;
    if (run.font === "picture") return this.letters(run.text, style, fill, width, size, matrix, clips);
    const bold = Number(style.fontWeight) >= 600;
    const font = run.font === "S" ? "S" : bold ? "B" : style.fontStyle === "italic" ? "O" : "H";
    const small = run.rise ? 0.66 : 1;
    const natural = run.codes.reduce((sum, code) => sum + (WIDTHS[code - 32] ?? 556), 0) * 0.001 * size * small * (bold ? BOLD : 1);
    const stretch = run.font === "S" || !width ? 100 : (100 * width) / natural;
    const at = [matrix.a, matrix.b, -matrix.c, -matrix.d, matrix.e, matrix.f].map(round).join(" ");
    const letters = run.codes.map((code) => (code < 128 && !"()\\".includes(String.fromCharCode(code)) ? String.fromCharCode(code) : `\\${code.toString(8).padStart(3, "0")}`));
    this.clipped(clips, [
      this.alpha(fill.alpha, 1),
      `BT ${fill.rgb} rg /${font} ${round(size * small)} Tf ${round(stretch)} Tz ${round(run.rise * size)} Ts ${at} Tm (${letters.join("")}) Tj ET`,
    ]);
  }

  /** Letters that no standard font has, as a picture. */
  letters(text, style, fill, width, size, matrix, clips) {
    const sharp = 4;
    const canvas = document.createElement("canvas");
    canvas.width = Math.ceil(width * sharp) || 1;
    canvas.height = Math.ceil(1.5 * size * sharp);
    const pen = canvas.getContext("2d");
    pen.font = `${style.fontWeight} ${size * sharp}px ${style.fontFamily}`;
    pen.fillStyle = style.fill;
    pen.fillText(text, 0, 1.1 * size * sharp);
    const box = matrix.translate(0, 0.4 * size).scaleNonUniform(canvas.width / sharp, -1.5 * size);
    this.picture(canvas, canvas.width, canvas.height, box, clips, fill.alpha);
  }

  async file(title) {
    const alphas = [...this.alphas].map(([key, name]) => `/${name} << /ca ${key.split(" ")[0]} /CA ${key.split(" ")[1]} >>`);
    const fonts = Object.entries(FONTS).map(([key, name]) => `/${key} << /Type /Font /Subtype /Type1 /BaseFont /${name}${key === "S" ? "" : " /Encoding /WinAnsiEncoding"} >>`);
    const images = this.images.map((_, place) => `/I${place} ${6 + 2 * place} 0 R`);
    const box = `[0 0 ${round(this.width * POINTS)} ${round(this.height * POINTS)}]`;
    const named = [...title].map((sign) => (sign.charCodeAt(0) & 0xffff).toString(16).padStart(4, "0")).join("");
    const objects = [
      ["<< /Type /Catalog /Pages 2 0 R >>"],
      ["<< /Type /Pages /Kids [3 0 R] /Count 1 >>"],
      [`<< /Type /Page /Parent 2 0 R /MediaBox ${box} /Contents 4 0 R /Resources << /Font << ${fonts.join(" ")} >> /ExtGState << ${alphas.join(" ")} >> /XObject << ${images.join(" ")} >> >> >>`],
      await stream("", new TextEncoder().encode(this.content.join("\n"))),
      [`<< /Title <feff${named}> /Producer (Mergescope) >>`],
    ];
    for (const [place, { width, height, data }] of this.images.entries()) {
      const picture = `/Type /XObject /Subtype /Image /Width ${width} /Height ${height} /BitsPerComponent 8`;
      const [rgb, alpha] = [new Uint8Array(3 * width * height), new Uint8Array(width * height)];
      for (let i = 0; i < alpha.length; i++) {
        alpha[i] = data[4 * i + 3]; // what is transparent is white too, since readers mix neighboring pixels
        rgb.set(alpha[i] ? data.subarray(4 * i, 4 * i + 3) : [255, 255, 255], 3 * i);
      }
      objects.push(await stream(`${picture} /ColorSpace /DeviceRGB /SMask ${7 + 2 * place} 0 R`, rgb));
      objects.push(await stream(`${picture} /ColorSpace /DeviceGray`, alpha));
    }
    return assembled(objects);
  }
}

/** Objects with the table of their places. */
function assembled(objects) {
  const parts = ["%PDF-1.4\n"];
  const places = [];
  let length = parts[0].length;
  const add = (part) => {
    parts.push(part);
    length += part.length; // all texts are ASCII
  };
  objects.forEach((pieces, number) => {
    places.push(length);
    [`${number + 1} 0 obj\n`, ...pieces, "\nendobj\n"].forEach(add);
  });
  const table = places.map((place) => `${String(place).padStart(10, "0")} 00000 n \n`).join("");
  const trailer = `trailer\n<< /Size ${objects.length + 1} /Root 1 0 R /Info 5 0 R >>\nstartxref\n${length}\n%%EOF\n`;
  parts.push(`xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}${trailer}`);
  return new Blob(parts, { type: "application/pdf" });
}

async function stream(entries, bytes) {
  const packed = new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate"));
  const data = new Uint8Array(await new Response(packed).arrayBuffer());
  return [`<< ${entries} /Length ${data.length} /Filter /FlateDecode >>\nstream\n`, data, "\nendstream"];
}

/** A color with its opacity; null if nothing is painted. */
function color(text, opacity) {
  const [red, green, blue, alpha = 1] = (/^rgba?\((.*)\)/.exec(text)?.[1].match(/[\d.]+/g) ?? []).map(Number);
  if (blue === undefined || alpha * opacity === 0) return null;
  return { rgb: [red, green, blue].map((part) => round(part / 255)).join(" "), alpha: Math.min(alpha * opacity, 1) };
}

/** The color at a place of a gradient, from 0 to 1. */
function between(stops, place) {
  const after = Math.max(1, stops.findIndex(([offset]) => offset >= place));
  const [[low, first], [high, second]] = [stops[after - 1], stops[after] ?? stops[after - 1]];
  const share = high > low ? Math.min(1, Math.max(0, (place - low) / (high - low))) : 0;
  const [from, to] = [first, second].map((text) => text.match(/[\d.]+/g).map(Number));
  return [0, 1, 2].map((part) => round((from[part] + share * (to[part] - from[part])) / 255)).join(" ");
}

/** The product of the opacities of an element and of those that it is in. */
function opacities(element) {
  let product = 1;
  for (let one = element; one instanceof SVGElement; one = one.parentNode) product *= getComputedStyle(one).opacity;
  return product;
}

function scale(matrix) {
  return Math.sqrt(Math.abs(matrix.a * matrix.d - matrix.b * matrix.c));
}

/** Pieces of a text that one font has, with the codes of their characters. */
function runs(text) {
  const pieces = [];
  let place = 0;
  for (const sign of text) {
    const start = place;
    place += sign.length;
    const one = lettered(sign);
    const last = pieces.at(-1);
    if (last && last.font === one.font && last.rise === one.rise && one.font !== "S") {
      last.text += sign;
      last.codes.push(...one.codes);
    } else pieces.push({ ...one, text: sign, start });
  }
  return pieces;
}

function lettered(sign) {
  const code = sign.codePointAt(0);
  if (sign in RAISED) return { font: "H", codes: lettered(RAISED[sign]).codes, rise: 0.33 };
  if (sign in LOWERED) return { font: "H", codes: [LOWERED[sign].charCodeAt(0)], rise: -0.12 };
  if ((code >= 32 && code < 127) || (code >= 160 && code < 256)) return { font: "H", codes: [code], rise: 0 };
  if (sign in WESTERN) return { font: "H", codes: [WESTERN[sign]], rise: 0 };
  if (sign in SYMBOL) return { font: "S", codes: [SYMBOL[sign]], rise: 0 };
  return { font: "picture", codes: [], rise: 0 };
}

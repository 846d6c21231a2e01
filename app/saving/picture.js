// The picture of a chart: what the chart shows now, zoom and hidden series included, on a light ground, laid out with fonts
// that readers of the file have, with lines of text under it.

const FAMILY = 'Arial, Helvetica, "Liberation Sans", sans-serif';
const NOTE = { size: 11, height: 15, side: 8, above: 4, below: 8, color: "#4B5563" }; // px
const SHARP = 3; // pixels of a PNG for one pixel on the screen
const NAMESPACE = "http://www.w3.org/2000/svg";

/** The chart as an SVG element that is not part of the page. */
async function drawn(data, family = FAMILY) {
  const chart = document.querySelector(`.st-key-${CSS.escape(data.chart)} .js-plotly-plot`);
  if (!chart || !window.Plotly) throw new Error("the chart is not drawn yet");
  const { width, height } = chart._fullLayout;
  // WebGL would be saved as pixels, and the font of the page is not on other machines
  const figure = lit({ data: chart.data, layout: chart.layout }, data.light);
  const traces = figure.data.map((trace) => (trace.type === "scattergl" ? { ...trace, type: "scatter" } : trace));
  const layout = { ...figure.layout, font: { ...figure.layout.font, family }, autosize: false, width, height };
  const address = await window.Plotly.toImage({ data: traces, layout }, { format: "svg", width, height });
  const text = decodeURIComponent(address.slice(address.indexOf(",") + 1));
  const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (svg.nodeName !== "svg") throw new Error("the picture is not valid SVG");
  return noted(svg, data, family, width, height);
}

/** A part of the chart with the colors of a light ground, where the page has a dark one; `light` is {dark color: light one}. */
function lit(part, light, isColor = false) {
  if (typeof part === "string") return (isColor && light[part]) || part;
  if (Array.isArray(part)) return part.map((one) => lit(one, light, isColor));
  if (part?.constructor !== Object) return part;
  const named = ([name, one]) => [name, lit(one, light, isColor || /color(way|scale)?$/.test(name))];
  return Object.fromEntries(Object.entries(part).map(named));
}

/** The picture with its description, and with the lines of text in a strip under it. */
function noted(svg, data, family, width, height) {
  const lines = data.notes.flatMap((note) => wrapped(note, family, width - 2 * NOTE.side));
  const strip = lines.length ? NOTE.above + lines.length * NOTE.height + NOTE.below : 0;
  svg.setAttribute("width", width);
  svg.setAttribute("height", height + strip);
  svg.setAttribute("viewBox", `0 0 ${width} ${height + strip}`);
  svg.setAttribute("role", "img");
  const white = made("rect", { width, height: height + strip, fill: "#ffffff" });
  svg.prepend(made("title", {}, data.title), made("desc", {}, data.description), white);
  const [x, first] = [NOTE.side, height + NOTE.above + NOTE.size];
  const font = { "font-family": family, "font-size": NOTE.size, fill: NOTE.color };
  lines.forEach((line, row) => svg.append(made("text", { ...font, x, y: first + row * NOTE.height }, line)));
  return svg;
}

function made(name, attributes, text = "") {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

/** A text as lines of at most this many pixels. */
function wrapped(text, family, width) {
  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = `${NOTE.size}px ${family}`;
  const lines = [];
  for (const word of text.split(/\s+/)) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && ruler.measureText(longer).width <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/** The picture as pixels. */
async function pixels(svg) {
  const canvas = document.createElement("canvas");
  canvas.width = SHARP * svg.getAttribute("width");
  canvas.height = SHARP * svg.getAttribute("height");
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
  await image.decode();
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

function download(file, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

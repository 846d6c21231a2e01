// The outline of an SVG element as straight lines and cubic curves.

/** Steps [operator, x, y, ...] in the element's coordinates: m, l, c or h; null if the element has no outline. */
function outline(element) {
  const of = (name) => element[name]?.baseVal?.value ?? 0;
  if (element.nodeName === "path") return steps(element.getAttribute("d") ?? "");
  if (element.nodeName === "rect") {
    const [x, y, width, height] = ["x", "y", "width", "height"].map(of);
    return [["m", x, y], ["l", x + width, y], ["l", x + width, y + height], ["l", x, y + height], ["h"]];
  }
  if (element.nodeName === "circle") return ring(of("cx"), of("cy"), of("r"));
  if (element.nodeName === "line") return [["m", of("x1"), of("y1")], ["l", of("x2"), of("y2")]];
  return null;
}

function ring(x, y, r) {
  const k = CURVE * r;
  return [
    ["m", x + r, y], ["c", x + r, y + k, x + k, y + r, x, y + r], ["c", x - k, y + r, x - r, y + k, x - r, y],
    ["c", x - r, y - k, x - k, y - r, x, y - r], ["c", x + k, y - r, x + r, y - k, x + r, y], ["h"],
  ];
}

/** Steps as operators of PDF, moved by a matrix. */
function placed(pieces, matrix) {
  return pieces
    .map(([operator, ...values]) => {
      const moved = [];
      for (let i = 0; i < values.length; i += 2) {
        const [x, y] = [values[i], values[i + 1]];
        moved.push(round(matrix.a * x + matrix.c * y + matrix.e), round(matrix.b * x + matrix.d * y + matrix.f));
      }
      return [...moved, operator].join(" ");
    })
    .join(" ");
}

const COUNTS = { m: 2, l: 2, h: 1, v: 1, c: 6, s: 4, q: 4, t: 2, a: 7, z: 0 }; // numbers that a command takes

/** The steps of a path's data. */
function steps(data) {
  const pen = { x: 0, y: 0, startX: 0, startY: 0, control: null, steps: [] };
  for (const [, letter, text] of data.matchAll(/([a-zA-Z])([^a-zA-Z]*(?:[eE][-+]?\d+[^a-zA-Z]*)*)/g)) {
    let command = letter.toLowerCase();
    const relative = letter === command;
    const numbers = numbersIn(text, command);
    do {
      step(pen, command, numbers.splice(0, COUNTS[command]), relative);
      if (command === "m") command = "l"; // further pairs are lines
    } while (numbers.length && COUNTS[command]);
  }
  return pen.steps;
}

/** The numbers of a command; the two flags of an arc may stand without a space before the next number. */
function numbersIn(text, command) {
  if (command !== "a") return (text.match(/[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?/g) ?? []).map(Number);
  const number = "([-+]?(?:\\d+\\.?\\d*|\\.\\d+)(?:[eE][-+]?\\d+)?)[\\s,]*";
  const arc = new RegExp(`${number}${number}${number}([01])[\\s,]*([01])[\\s,]*${number}${number}`, "g");
  return [...text.matchAll(arc)].flatMap((values) => values.slice(1).map(Number));
}

function step(pen, command, values, relative) {
  const [dx, dy] = relative ? [pen.x, pen.y] : [0, 0];
  const add = (operator, ...to) => {
    pen.steps.push([operator, ...to]);
    [pen.x, pen.y] = to.slice(-2);
  };
  if (command === "z") {
    pen.steps.push(["h"]);
    [pen.x, pen.y] = [pen.startX, pen.startY];
  } else if (command === "a") {
    arc(pen, values, values[5] + dx, values[6] + dy, add);
  } else if (command === "h") add("l", values[0] + dx, pen.y);
  else if (command === "v") add("l", pen.x, values[0] + dy);
  else {
    const to = values.map((value, place) => value + (place % 2 ? dy : dx));
    const mirrored = pen.control ? [2 * pen.x - pen.control[0], 2 * pen.y - pen.control[1]] : [pen.x, pen.y];
    if (command === "s") to.unshift(...mirrored);
    if (command === "t") to.unshift(...mirrored);
    pen.control = "csqt".includes(command) ? to.slice(-4, -2) : null;
    if ("qt".includes(command)) add("c", ...raised(pen, to));
    else add("cs".includes(command) ? "c" : command, ...to);
    if (command === "m") [pen.startX, pen.startY] = to;
    return;
  }
  pen.control = null;
}

/** A curve with one control point as one with two. */
function raised({ x, y }, [cx, cy, toX, toY]) {
  return [x + (2 * (cx - x)) / 3, y + (2 * (cy - y)) / 3, toX + (2 * (cx - toX)) / 3, toY + (2 * (cy - toY)) / 3, toX, toY];
}

/** An arc of an ellipse as curves of at most a quarter each. */
function arc(pen, [rx, ry, degrees, large, sweep], toX, toY, add) {
  const turn = (degrees * Math.PI) / 180;
  const [cos, sin] = [Math.cos(turn), Math.sin(turn)];
  const [halfX, halfY] = [(pen.x - toX) / 2, (pen.y - toY) / 2];
  const [x, y] = [cos * halfX + sin * halfY, -sin * halfX + cos * halfY];
  if (!rx || !ry || (!x && !y)) return void add("l", toX, toY);
  const grow = Math.max(1, Math.sqrt((x / rx) ** 2 + (y / ry) ** 2)); // radii that are too small
  const [a, b] = [Math.abs(rx) * grow, Math.abs(ry) * grow];
  const rest = Math.max(0, (a * b) ** 2 / ((a * y) ** 2 + (b * x) ** 2) - 1);
  const side = (large === sweep ? -1 : 1) * Math.sqrt(rest);
  const [cx, cy] = [(side * a * y) / b, (-side * b * x) / a];
  const [midX, midY] = [cos * cx - sin * cy + (pen.x + toX) / 2, sin * cx + cos * cy + (pen.y + toY) / 2];
  const start = Math.atan2((y - cy) / b, (x - cx) / a);
  let angle = Math.atan2((-y - cy) / b, (-x - cx) / a) - start;
  if (sweep && angle < 0) angle += 2 * Math.PI;
  if (!sweep && angle > 0) angle -= 2 * Math.PI;
  const pieces = Math.max(1, Math.ceil(Math.abs(angle) / (Math.PI / 2) - 1e-6));
  const part = angle / pieces;
  const reach = (4 / 3) * Math.tan(part / 4);
  const at = (u, v) => [midX + cos * a * u - sin * b * v, midY + sin * a * u + cos * b * v];
  for (let i = 0; i < pieces; i++) {
    const [from, to] = [start + i * part, start + (i + 1) * part];
    const [c1, s1, c2, s2] = [Math.cos(from), Math.sin(from), Math.cos(to), Math.sin(to)];
    add("c", ...at(c1 - reach * s1, s1 + reach * c1), ...at(c2 + reach * s2, s2 - reach * c2), ...at(c2, s2));
  }
}

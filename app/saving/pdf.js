// Writes the picture of a chart as PDF, with lines, areas and text as such, by the programs in vendor/, which the browser
// fetches at the first PDF. Text is set in Arimo, as wide as Arial; letters that it lacks become pictures.

const POINTS = 0.75; // of a pixel
const FONT = "Arimo";
const WEIGHTS = { normal: "Regular", bold: "Bold" };
const PROGRAMS = ["jspdf.umd.min.js", "svg2pdf.umd.min.js"];
let fetched = null; // the files of the font in base64 by weight, once all is there

async function pdfFile(data) {
  fetched ??= await fetchAll(data.vendor);
  const svg = await drawn(data, FONT);
  const [width, height] = ["width", "height"].map((name) => POINTS * svg.getAttribute(name));
  const orientation = width > height ? "landscape" : "portrait";
  const page = { unit: "pt", format: [width, height], orientation };
  const pdf = new window.jspdf.jsPDF({ ...page, compress: true, putOnlyUsedFonts: true });
  pdf.setProperties({ title: data.title, subject: data.description, creator: "Mergescope" });
  for (const [weight, file] of Object.entries(fetched)) {
    pdf.addFileToVFS(weight, file);
    pdf.addFont(weight, FONT, weight);
  }
  const stage = document.createElement("div");
  stage.style.cssText = "position:fixed;left:-99999px;top:0";
  stage.append(svg);
  document.body.append(stage); // the browser lays out text only in a document
  try {
    const glyphs = pdf.setFont(FONT).getFont().metadata;
    const lacks = (sign) => sign.trim() && !glyphs.characterToGlyph(sign.codePointAt(0));
    for (const text of svg.querySelectorAll("text")) if ([...text.textContent].some(lacks)) await replaceByPicture(text);
    await pdf.svg(svg, { width, height, loadImages: "data" });
  } finally {
    stage.remove();
  }
  return pdf.output("blob");
}

/** The programs run one after the other, and the font known to the page, which measures texts with it. */
async function fetchAll(folder) {
  for (const name of PROGRAMS)
    await new Promise((resolve, reject) => {
      const script = Object.assign(document.createElement("script"), { src: folder + name, onload: resolve });
      script.onerror = () => reject(new Error("its program was not found"));
      document.head.append(script);
    });
  const files = {};
  for (const [weight, name] of Object.entries(WEIGHTS)) {
    const bytes = new Uint8Array(await (await fetch(`${folder}${FONT}-${name}.ttf`)).arrayBuffer());
    document.fonts.add(await new FontFace(FONT, bytes, { weight }).load());
    files[weight] = btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ""));
  }
  return files;
}

/** Draw a text as pixels in its place. */
async function replaceByPicture(text) {
  text.style.fontFamily = FAMILY; // a picture does not know the fonts of the page
  const { x, y, width, height } = text.getBBox();
  if (!width) return;
  const copy = text.cloneNode(true);
  copy.removeAttribute("transform");
  const svg = made("svg", { viewBox: `${x} ${y} ${width} ${height}`, width, height });
  svg.append(copy);
  const href = (await pixels(svg)).toDataURL();
  text.replaceWith(made("image", { x, y, width, height, href, transform: text.getAttribute("transform") ?? "" }));
}

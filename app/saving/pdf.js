// Writes the picture of a chart as PDF, with lines, areas and text as such, by the programs in vendor/, which the browser
// fetches at the first PDF. Text is set in Arimo, as wide as Arial; letters that it lacks become pictures.

const FONT = "Arimo";
const PROGRAMS = ["jspdf.umd.min.js", "svg2pdf.umd.min.js"];
let fetched = null; // the font file in base64, once all is there

async function pdfFile(data) {
  fetched ??= await fetchAll(data.vendor);
  const svg = await drawn(data, FONT);
  const [width, height] = ["width", "height"].map((name) => Number(svg.getAttribute(name)));
  const pdf = new window.jspdf.jsPDF({ unit: "px", hotfixes: ["px_scaling"], format: [width, height], orientation: width > height ? "l" : "p", compress: true });
  pdf.setProperties({ title: data.title, subject: data.description, creator: "Mergescope" });
  pdf.addFileToVFS(FONT, fetched);
  pdf.addFont(FONT, FONT, "normal");
  pdf.setFont(FONT);
  const stage = document.createElement("div");
  stage.style.cssText = "position:fixed;left:-99999px;top:0";
  stage.append(svg);
  document.body.append(stage); // the browser lays out text only in a document
  try {
    const glyphs = pdf.getFont().metadata;
    for (const text of svg.querySelectorAll("text"))
      if ([...text.textContent].some((sign) => !glyphs.characterToGlyph(sign.codePointAt(0)))) await replaceByPicture(text);
    await pdf.svg(svg, { width, height, loadImages: "data" });
  } finally {
    stage.remove();
  }
  return pdf.output("blob");
}

/** The programs run one after the other, and the font known to the page, which measures texts. */
async function fetchAll(folder) {
  for (const name of PROGRAMS)
    await new Promise((resolve, reject) => {
      const script = Object.assign(document.createElement("script"), { src: folder + name, onload: resolve });
      script.onerror = () => reject(new Error("its program was not found"));
      document.head.append(script);
    });
  const font = new Uint8Array(await (await fetch(`${folder}${FONT}.ttf`)).arrayBuffer());
  document.fonts.add(await new FontFace(FONT, font).load());
  return btoa(font.reduce((text, byte) => text + String.fromCharCode(byte), ""));
}

async function replaceByPicture(text) {
  const { x, y, width, height } = text.getBBox();
  const copy = text.cloneNode(true);
  copy.removeAttribute("transform");
  const svg = made("svg", { viewBox: `${x} ${y} ${width} ${height}`, width, height });
  svg.append(copy);
  const href = (await pixels(svg)).toDataURL();
  text.replaceWith(made("image", { x, y, width, height, href, transform: text.getAttribute("transform") ?? "" }));
}

// Saves the chart beside it as SVG, PNG or PDF.

const WRITERS = { svg: svgFile, png: pngFile, pdf: pdfFile };

export default function (component) {
  const { data, parentElement } = component;
  const status = parentElement.querySelector("[role=status]");
  for (const button of parentElement.querySelectorAll("button")) {
    button.onclick = async () => {
      status.textContent = "";
      try {
        download(await WRITERS[button.dataset.format](data), `${data.name}.${button.dataset.format}`);
      } catch (error) {
        console.warn(error);
        status.textContent = `This browser could not write the file (${error.message}). Save HTML instead.`;
      }
    };
  }
}

async function svgFile(data) {
  return new Blob([new XMLSerializer().serializeToString(await drawn(data))], { type: "image/svg+xml" });
}

async function pngFile(data) {
  const canvas = await pixels(await drawn(data));
  const file = await new Promise((done) => canvas.toBlob(done, "image/png"));
  if (!file) throw new Error("the picture is too large for this browser");
  return file;
}

// Copies HTML that shows a view in a frame. A picture of the chart stands in its place until the view has said that it is
// there, and stays where no server answers.

const FRAME = "border:0;width:100%";
const SWAP = `(() => {
  const [still, frame] = document.currentScript.parentElement.children;
  const framed = frame.style.cssText;
  still.style.display = "block";
  frame.style.cssText = framed + ";position:absolute;inset:0;opacity:0";
  addEventListener("message", (event) => {
    if (event.source !== frame.contentWindow || event.data?.source !== "mergescope") return;
    still.style.display = "none";
    frame.style.cssText = framed;
    frame.height = event.data.height;
  });
})()`;

export default function (component) {
  const { data, parentElement } = component;
  const status = parentElement.querySelector("[role=status]");
  parentElement.querySelector("button").onclick = async () => {
    status.textContent = "";
    try {
      const text = snippet(data, new XMLSerializer().serializeToString(await drawn(data)));
      if (navigator.clipboard) {
        await navigator.clipboard.writeText(text);
        status.textContent = "Copied.";
      } else {
        // the clipboard is only open to pages from this machine or by HTTPS
        download(new Blob([text], { type: "text/html" }), `${data.name}.html`);
      }
    } catch (error) {
      console.warn(error);
      status.textContent = `This browser could not copy it (${error.message}). Use the frame alone.`;
    }
  };
}

function snippet(data, svg) {
  const page = document.implementation.createHTMLDocument(""); // where nothing is loaded or run
  const box = page.createElement("div");
  box.style.cssText = "position:relative;max-width:960px";
  const still = page.createElement("img");
  let binary = "";
  for (const byte of new TextEncoder().encode(svg)) binary += String.fromCharCode(byte);
  still.setAttribute("src", `data:image/svg+xml;base64,${btoa(binary)}`);
  still.alt = data.description;
  still.style.cssText = "display:none;width:100%";
  const frame = page.createElement("iframe");
  frame.setAttribute("src", data.address);
  frame.title = data.title;
  frame.setAttribute("height", 540);
  frame.style.cssText = FRAME;
  const script = page.createElement("script");
  script.textContent = SWAP;
  box.append(still, frame, script);
  return box.outerHTML;
}

// Opens a desk without a server: scripts carry all files, because a page from disk may not fetch. `mixFiles` is
// {name: size} in the order in which the files need each other; each script calls takeMixFile with its content.
const blobs = {};

window.takeMixFile = (name, content) => {
  const letters = atob(content), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = letters.charCodeAt(at);
  blobs[name] = new Blob([bytes]);
};

/** The addresses of files in the memory of this page or worker, with programs that import each other from there. */
async function linkFiles(files) {
  const urls = {};
  for (const [name, blob] of Object.entries(files)) {
    let content = blob;
    if (/\.m?js$/.test(name)) {
      const link = (all, other) => (urls[other] ? `"${urls[other]}"` : all);
      const text = (await blob.text()).replace(/"\.\/(?:vendor\/)?([\w.-]+)"/g, link);
      content = new Blob([text], { type: "text/javascript" });
    }
    urls[name] = URL.createObjectURL(content);
  }
  return urls;
}

/** A worker that makes addresses of its own: pages from disk may not share theirs with it. */
window.mixWorker = () => {
  const start = `let program = null;
    ${linkFiles}
    onmessage = async (event) => {
      try {
        if (program === null) program = linkFiles(event.data).then((urls) => import((self.mixUrls = urls)["worker.js"]));
        else await program.then(() => self.onmessage(event));
      } catch (error) {
        postMessage({ kind: "failed", error: String(error) });
      }
    };`;
  const worker = new Worker(URL.createObjectURL(new Blob([start], { type: "text/javascript" })));
  worker.postMessage(blobs);
  return worker;
};

(async () => {
  const dark = matchMedia("(prefers-color-scheme: dark)"), page = document.getElementById("mix");
  const followTheme = () => (document.documentElement.dataset.theme = dark.matches ? "dark" : "light");
  dark.addEventListener("change", followTheme);
  followTheme();
  const total = Object.values(window.mixFiles).reduce((sum, size) => sum + size);
  const meter = document.createElement("progress"), words = document.createElement("p");
  Object.assign(meter, { max: total, value: 0, ariaLabel: "Loading" });
  page.replaceChildren(words, meter);
  try {
    for (const [name, size] of Object.entries(window.mixFiles)) {
      words.textContent = `Loading: ${(meter.value / 1e6).toFixed(0)} of ${(total / 1e6).toFixed(0)} MB.`;
      await new Promise((resolve, reject) => {
        const script = Object.assign(document.createElement("script"), { src: `${name}.data.js`, onload: resolve });
        script.onerror = () => reject(new Error(`${name}.data.js cannot be loaded.`));
        document.head.append(script);
      });
      document.head.lastElementChild.remove(); // with its text, which is as large as the file
      meter.value += size;
    }
    window.mixUrls = await linkFiles(blobs);
    const { open } = await import(window.mixUrls["mix.js"]);
    await open({ folder: "desk", link: new URLSearchParams(location.search).get("desk") ?? "" });
  } catch (error) {
    page.textContent = `The desk cannot be opened: ${error.message} Reload the page to try again.`;
  }
})();

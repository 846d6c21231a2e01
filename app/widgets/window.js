// Says how high and how wide the window is; in a frame also says to the page around it how high the view is. The key b blanks a
// presented screen, and shows it again.
export default ({ data, setStateValue }) => {
  const typing = "input, textarea, select, [contenteditable=true], [role=combobox]";
  const root = document.documentElement;
  let timer;
  const tell = () => {
    setStateValue("height", window.innerHeight);
    setStateValue("width", window.innerWidth);
    if (data.bare && window.parent !== window) {
      const height = Math.max(window.innerHeight, data.least);
      window.parent.postMessage({ source: "mergescope", height, figure: data.figure }, "*");
    }
  };
  const later = () => { clearTimeout(timer); timer = setTimeout(tell, 300); };
  const pressed = (event) => {
    const within = event.composedPath()[0];
    if (event.ctrlKey || event.metaKey || event.altKey || (within.matches && within.matches(typing))) return;
    if (event.key === "b" && !data.bare) root.toggleAttribute("data-blank");
    else if (event.key === "Escape") root.removeAttribute("data-blank");
  };
  tell();
  window.addEventListener("resize", later);
  document.addEventListener("keydown", pressed);
  return () => {
    clearTimeout(timer);
    root.removeAttribute("data-blank");
    window.removeEventListener("resize", later);
    document.removeEventListener("keydown", pressed);
  };
};

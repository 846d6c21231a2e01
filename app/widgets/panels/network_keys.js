// Sends the arrow keys that are pressed on the map of the network, and the choice from the menu that Enter opens there.
const DIRECTIONS = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" };
const PATIENCE = 10000; // ms after a key in which a map that is drawn again takes the focus that its predecessor had
const takeFocus = (map) => { // from a predecessor that may still be there, as soon as the map is visible
  const from = document.activeElement, isFree = from === document.body || from.role === "application";
  if (!isFree || from === map || !(performance.now() - window.mergescopeMapKey < PATIENCE)) return;
  map.focus({ preventScroll: true });
  requestAnimationFrame(() => takeFocus(map));
};
export default ({ data, parentElement, setTriggerValue }) => {
  let menu;
  const find = () => document.querySelector(`.st-key-${data.panel} .js-plotly-plot`);
  const prepare = () => {
    const map = find();
    if (!map || map.hasAttribute("tabindex")) return;
    map.setAttribute("tabindex", "0");
    map.setAttribute("role", "application");
    map.setAttribute("aria-label", "Map of the network: arrow keys choose a tensor, Enter opens its menu");
    takeFocus(map);
  };
  const close = () => {
    const open = menu;
    menu = undefined; // first, because removing the menu takes the focus from it
    open?.remove();
  };
  const leave = () => { close(); find()?.focus({ preventScroll: true }); };
  const openMenu = (map, outline) => {
    close();
    menu = Object.assign(document.createElement("div"), { role: "menu", ariaLabel: "The chosen tensor" });
    for (const item of data.items) {
      const button = Object.assign(document.createElement("button"), { role: "menuitem", textContent: item, tabIndex: -1 });
      button.addEventListener("click", () => { leave(); setTriggerValue("press", item); });
      menu.append(button);
    }
    parentElement.append(menu);
    const box = (map.querySelector(`.shapelayer path[data-index="${outline}"]`) ?? map).getBoundingClientRect();
    const room = [window.innerWidth - menu.offsetWidth - 8, window.innerHeight - menu.offsetHeight - 8];
    menu.style.left = `${Math.max(8, Math.min(box.left, room[0]))}px`;
    menu.style.top = `${Math.max(8, Math.min(box.bottom + 4, room[1]))}px`;
    menu.addEventListener("keydown", (event) => {
      const items = [...menu.children], at = items.indexOf(event.target), count = items.length;
      const next = { ArrowDown: (at + 1) % count, ArrowUp: (at + count - 1) % count, Home: 0, End: count - 1 }[event.key];
      if (next !== undefined) items[next].focus();
      else if (event.key === "Escape" || event.key === "Tab") leave();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    menu.addEventListener("focusout", (event) => menu?.contains(event.relatedTarget) || close());
    menu.firstChild.focus();
  };
  const press = (event) => {
    const map = find();
    if (!map || !map.contains(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    const isEnter = event.key === "Enter" && event.target === map;
    if (!isEnter && !(event.key in DIRECTIONS)) return;
    event.preventDefault();
    window.mergescopeMapKey = performance.now(); // outlives this component, which is drawn again with the map
    const outline = map.layout.shapes.findLastIndex((shape) => shape.name === "selected");
    if (isEnter && outline >= 0) openMenu(map, outline);
    else setTriggerValue("press", DIRECTIONS[event.key] ?? "right"); // Enter chooses the first tensor
  };
  prepare();
  const observer = new MutationObserver(prepare);
  observer.observe(document.body, { childList: true, subtree: true });
  document.addEventListener("keydown", press, true);
  return () => {
    close();
    observer.disconnect();
    document.removeEventListener("keydown", press, true);
  };
};

// Sends the arrow keys that are pressed on the map of the network. Enter moves the focus to the links of the chosen tensor.
const DIRECTIONS = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" };
export default ({ data, setTriggerValue }) => {
  const find = () => document.querySelector(`.st-key-${data.panel} .js-plotly-plot`);
  const prepare = () => {
    const map = find();
    if (!map || map.hasAttribute("tabindex")) return;
    map.setAttribute("tabindex", "0");
    map.setAttribute("role", "application");
    map.setAttribute("aria-label", "Map of the network: arrow keys choose a tensor, Enter goes to its views");
  };
  const press = (event) => {
    const map = find();
    if (!map || !map.contains(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in DIRECTIONS) {
      event.preventDefault();
      setTriggerValue("move", DIRECTIONS[event.key]);
    } else if (event.key === "Enter" && event.target === map) {
      document.querySelector(".st-key-tensor_views a")?.focus();
    }
  };
  prepare();
  const observer = new MutationObserver(prepare);
  observer.observe(document.body, { childList: true, subtree: true });
  document.addEventListener("keydown", press, true);
  return () => {
    observer.disconnect();
    document.removeEventListener("keydown", press, true);
  };
};

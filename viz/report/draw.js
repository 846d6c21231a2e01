"use strict";
(() => {
  const PAPER = 660; // px, the width of a printed page between its margins
  const settings = {
    displaylogo: false,
    responsive: true,
    modeBarButtonsToRemove: ["autoScale2d", "select2d", "lasso2d"],
  };
  const plots = [];
  for (const data of document.querySelectorAll("script[data-plot]")) {
    const plot = document.getElementById(data.dataset.plot);
    const figure = JSON.parse(data.textContent);
    const saved = { format: "svg", filename: data.dataset.plot };
    Plotly.newPlot(plot, figure.data, figure.layout, { ...settings, toImageButtonOptions: saved });
    plots.push(plot);
  }
  window.addEventListener("beforeprint", () => {
    for (const plot of plots) Plotly.relayout(plot, { width: PAPER });
  });
  window.addEventListener("afterprint", () => {
    for (const plot of plots) Plotly.relayout(plot, { width: null, autosize: true });
  });
})();

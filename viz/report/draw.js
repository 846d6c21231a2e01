"use strict";
(() => {
  const PAPER = { width: 660, height: 880 }; // px, a printed page between its margins, with room for a caption
  const settings = {
    displaylogo: false,
    showSendToCloud: false, // no figure leaves this machine
    plotlyServerURL: "",
    responsive: true,
    modeBarButtonsToRemove: ["autoScale2d", "select2d", "lasso2d"],
  };
  const plots = [];
  for (const data of document.querySelectorAll("script[data-plot]")) {
    const plot = document.getElementById(data.dataset.plot);
    const figure = JSON.parse(data.textContent);
    const saved = { format: "svg", filename: data.dataset.plot };
    Plotly.newPlot(plot, figure.data, figure.layout, { ...settings, toImageButtonOptions: saved });
    plots.push({ plot, height: figure.layout.height });
  }
  window.addEventListener("beforeprint", () => {
    for (const { plot, height } of plots) {
      Plotly.relayout(plot, { width: PAPER.width, height: Math.min(height, PAPER.height) });
    }
  });
  window.addEventListener("afterprint", () => {
    for (const { plot, height } of plots) Plotly.relayout(plot, { width: null, height, autosize: true });
  });
})();

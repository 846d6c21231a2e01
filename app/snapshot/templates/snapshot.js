"use strict";
(() => {
  const SETTINGS = {
    displaylogo: false,
    showSendToCloud: false, // no figure leaves this machine
    plotlyServerURL: "",
    responsive: true,
    modeBarButtonsToRemove: ["autoScale2d", "select2d", "lasso2d"],
  };
  const FIELDS = ["INPUT", "TEXTAREA", "SELECT"];
  const parsed = new Map();
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // Figures: values are in the page once; layouts and traces name those of their fields, and frames name layouts and traces.

  function contents(figure) {
    const key = figure.dataset.figure;
    if (!parsed.has(key)) parsed.set(key, JSON.parse(document.getElementById(key).textContent));
    return parsed.get(key);
  }

  function draw(figure, place) {
    const { drawn, alts, captions, values } = contents(figure);
    const [layout, ...traces] = drawn.frames[place].map((part) => {
      const fields = Object.entries(drawn.parts[part]);
      return Object.fromEntries(fields.map(([name, value]) => [name, structuredClone(drawn.values[value])]));
    });
    const plot = figure.querySelector(".plot");
    Plotly.react(plot, traces, layout, SETTINGS);
    plot.setAttribute("aria-label", alts[place]);
    figure.querySelector(".alt").textContent = alts[place];
    figure.querySelector("figcaption").textContent = captions[place];
    const click = figure.dataset.cells ? toggle : choose;
    if (figure.dataset.shown === undefined) plot.on("plotly_click", (event) => click(figure, event.points[0]));
    figure.dataset.shown = place;
    figure.querySelector(".chosen").hidden = true;
    if (figure.dataset.cells) mark(figure);
    const slider = figure.querySelector(".slider input");
    if (slider) {
      slider.value = place;
      slider.setAttribute("aria-valuetext", values[place]);
      figure.querySelector(".slider output").textContent = values[place];
    }
  }

  // What the pointer shows at a mark stays below the picture once the mark is clicked.
  function choose(figure, point) {
    const written = [point.text, point.hovertext].find((text) => typeof text === "string" && text);
    const words = written || [point.x, point.y, point.z].filter((value) => value !== undefined).join(", ");
    const chosen = figure.querySelector(".chosen");
    chosen.textContent = `Chosen: ${plain(words.split("<br>").join("; "))}`;
    chosen.hidden = false;
  }

  function plain(words) {
    return new DOMParser().parseFromString(words, "text/html").body.textContent;
  }

  // A map whose cells are marked: the field of the guess has a line for each mark, and the picture shows those.

  const field = (figure) => figure.closest(".step").querySelector("textarea[name=guess]");
  const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

  function named(figure) {
    if (!figure.cells) {
      const targets = figure.querySelector(".plot")._fullData.find((trace) => trace.type === "bar");
      const { frames, parts, values } = contents(figure).drawn;
      const part = frames[0].map((number) => parts[number]).find((fields) => values[fields.type] === "bar");
      const texts = values[part.text]; // of the blank map, where they are names alone
      figure.cells = new Map(texts.map((text, k) => [plain(text), [targets.x[k], Math.round(targets.base[k] + 0.5)]]));
    }
    return figure.cells;
  }

  function toggle(figure, point) {
    const input = field(figure);
    const name = [...named(figure).keys()][point.pointNumber];
    if (input.disabled || !name) return;
    const marked = lines(input.value);
    const kept = marked.filter((line) => line !== name);
    if (kept.length === marked.length && marked.length < Number(figure.dataset.cells)) kept.push(name);
    input.value = kept.join("\n");
    mark(figure);
  }

  function mark(figure) {
    const plot = figure.querySelector(".plot");
    const marked = lines(field(figure).value);
    const places = marked.map((line) => named(figure).get(line)).filter(Boolean);
    const marks = plot.data.findIndex((trace) => trace.type === "scatter");
    Plotly.restyle(plot, { x: [places.map(([x]) => x)], y: [places.map(([, y]) => y)], text: [marked] }, [marks]);
    const chosen = figure.querySelector(".chosen");
    chosen.textContent = `${marked.length} of ${figure.dataset.cells} marked.`;
    chosen.hidden = false;
  }

  function drawVisible() {
    for (const figure of all("figure[data-figure]")) {
      if (figure.offsetParent !== null && figure.dataset.shown === undefined) draw(figure, Number(figure.dataset.first));
    }
  }

  for (const figure of all("figure[data-figure]")) {
    const slider = figure.querySelector(".slider input");
    if (slider) slider.addEventListener("input", () => draw(figure, Number(slider.value)));
  }
  for (const form of all("form.guess")) {
    for (const slider of all("input[type=range]", form)) {
      slider.addEventListener("input", () => {
        slider.parentElement.querySelector("output").textContent = `${slider.value} ${form.dataset.unit}`;
      });
    }
  }

  // Progress: in this browser only, where it keeps anything for a page.

  function read(lesson) {
    try {
      const kept = JSON.parse(localStorage.getItem(`mergescope:${lesson}`));
      return { step: 1, done: [], said: {}, ...kept };
    } catch {
      return { step: 1, done: [], said: {} };
    }
  }

  function keep(lesson, progress) {
    try {
      localStorage.setItem(`mergescope:${lesson}`, JSON.stringify(progress));
    } catch {
      // a browser that keeps nothing for files: progress lasts as long as the page
    }
  }

  for (const card of all("[data-card]")) {
    const done = read(card.dataset.card).done.length;
    if (done) card.querySelector(".progress").textContent = `${done} of ${card.dataset.steps} done.`;
  }

  const lesson = document.getElementById("lesson");
  if (lesson) teach(lesson);
  drawVisible();

  function teach(element) {
    const key = element.dataset.lesson;
    const steps = all("section.step", element);
    const progress = read(key);
    const bar = element.querySelector(".turn");
    bar.hidden = false;

    function finish(number) {
      if (!progress.done.includes(number)) progress.done.push(number);
      steps[number - 1].querySelector(".done").hidden = false;
      keep(key, progress);
    }

    function show(number, focus = true) {
      progress.step = Math.min(Math.max(number, 1), steps.length);
      steps.forEach((step, place) => {
        step.hidden = place + 1 !== progress.step;
      });
      const step = steps[progress.step - 1];
      if (["say", "explain"].includes(step.dataset.kind)) finish(progress.step);
      bar.querySelector(".back").disabled = progress.step === 1;
      bar.querySelector(".next").disabled = progress.step === steps.length;
      bar.querySelector(".place").textContent = `${progress.step} of ${steps.length}`;
      keep(key, progress);
      drawVisible();
      if (focus) step.focus();
    }

    steps.forEach((step, place) => prepare(step, place + 1));

    function prepare(step, number) {
      const said = progress.said[number];
      if (progress.done.includes(number)) step.querySelector(".done").hidden = false;
      const form = step.querySelector("form.guess");
      if (form) {
        form.addEventListener("submit", (event) => {
          event.preventDefault();
          const values = all("[name=guess]", form).filter((one) => one.type !== "radio" || one.checked);
          const given = values.map((one) => one.value);
          const twice = form.dataset.kind === "order" && new Set(given).size < given.length;
          const problem = form.querySelector(".problem");
          if (problem) problem.hidden = !twice;
          if (twice) return;
          progress.said[number] = given;
          reveal(step, form, given);
          finish(number);
        });
        form.querySelector("button").disabled = false;
        const map = step.querySelector("figure[data-cells]");
        if (map) field(map).addEventListener("input", () => mark(map));
        if (said) reveal(step, form, said);
      }
      for (const button of all(".answer", step)) {
        button.addEventListener("click", () => {
          const reply = button.parentElement.querySelector(".reply");
          reply.hidden = false;
          button.setAttribute("aria-expanded", "true");
          progress.said[number] = [...(progress.said[number] || []), all(".answer", step).indexOf(button)].slice(-20);
          finish(number);
        });
      }
      const showing = step.querySelector(".show");
      if (showing) {
        showing.addEventListener("click", () => {
          const on = showing.getAttribute("aria-pressed") !== "true";
          showing.setAttribute("aria-pressed", String(on));
          showing.textContent = on ? "Show the start" : "Show me";
          document.getElementById(`view-${number}`).hidden = on;
          document.getElementById(`shown-${number}`).hidden = !on;
          drawVisible();
          finish(number);
        });
      }
      const slider = step.querySelector(".slider input");
      const aside = step.querySelector("[data-fulfils]");
      if (slider && aside) {
        slider.addEventListener("input", () => {
          const fulfils = aside.dataset.fulfils[Number(slider.value)] === "1";
          aside.textContent = fulfils ? "That is it." : "Not yet. The slider above the picture does it here.";
          if (fulfils) finish(number);
        });
      }
      const text = step.querySelector("label textarea:not([name])");
      if (text) {
        text.value = said || "";
        text.addEventListener("input", () => {
          progress.said[number] = text.value;
          finish(number);
        });
      }
    }

    function reveal(step, form, given) {
      const fields = all("[name=guess]", form);
      const shown = given.map((value) => label(fields, value, form));
      step.querySelector(".yours").textContent = `Your guess: ${shown.join(form.dataset.kind === "order" ? " > " : ", ")}`;
      const map = step.querySelector("figure[data-cells]");
      if (map) {
        field(map).value = given[0];
        map.dataset.first = 1; // the frame with what was measured
        if (map.dataset.shown !== undefined) draw(map, 1);
      }
      step.querySelector(".truth").hidden = false;
      for (const field of [...fields, form.querySelector("button")]) field.disabled = true;
      for (const one of step.querySelectorAll(".veil")) one.hidden = true;
      for (const one of step.querySelectorAll("figure[hidden]")) one.hidden = false;
      drawVisible();
    }

    function label(fields, value, form) {
      const kind = form.dataset.kind;
      if (kind === "choice") return fields[Number(value)]?.parentElement.textContent.trim() ?? value;
      if (kind === "cells") return lines(value).join("; ");
      if (kind === "order") return fields[0].options[Number(value)]?.textContent.trim() ?? value;
      return form.dataset.unit ? `${value} ${form.dataset.unit}` : value;
    }

    bar.querySelector(".back").addEventListener("click", () => show(progress.step - 1));
    bar.querySelector(".next").addEventListener("click", () => show(progress.step + 1));
    bar.querySelector(".forget").addEventListener("click", () => {
      keep(key, { step: 1, done: [], said: {} });
      location.reload();
    });
    document.addEventListener("keydown", (event) => {
      if (FIELDS.includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
      const turn = { ".": 1, PageDown: 1, ",": -1, PageUp: -1 }[event.key];
      if (turn) {
        event.preventDefault();
        show(progress.step + turn);
      }
    });
    show(progress.step, false);
  }
})();

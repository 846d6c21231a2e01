"""Times in Chromium how long a stroke on the canvas of Masks takes to be seen, against a step of the prune ratio.

    python tests/bench/repaint.py             # the bundled benchmark, and eight experts of 152 tensors (as ViT-B/32)
    python tests/bench/repaint.py --rounds 15

A round paints one cell and moves the ratio by one step, one after the other, and times each from the click or the key
to the moment at which the chart is drawn again. The table gives medians and their ratio, which is to be at most 1.5.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tiny
import tiny_library
import torch
from browser_tab import App, new_tab
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
BUNDLED, LARGE = "bundled, 8 × 80", "as ViT-B/32, 8 × 152"
EXPERTS = ("circles", "digits", "flags", "leaves", "signs", "stars", "stripes", "waves")
PLACE = """([key, column, row]) => {
  const chart = [...document.querySelectorAll('.js-plotly-plot')].find(e => e.layout?.meta?.key === key);
  chart.scrollIntoView({block: 'center'});
  const layout = chart._fullLayout, box = chart.getBoundingClientRect();
  const x = layout.xaxis, y = layout.yaxis;
  return [box.left + x._offset + x.c2p(column), box.top + y._offset + y.c2p(row)];
}"""
WATCH = """([key, event]) => {
  const chart = [...document.querySelectorAll('.js-plotly-plot')].find(e => e.layout?.meta?.key === key);
  window.took = null;
  const old = JSON.stringify(chart._fullData.map(t => t.z && Array.from(t.z, row => Array.from(row))));
  document.addEventListener(event, () => {
    const started = performance.now();
    const drawn = () => {
      const now = [...document.querySelectorAll('.js-plotly-plot')].find(e => e.layout?.meta?.key === key);
      if (now && JSON.stringify(now._fullData.map(t => t.z && Array.from(t.z, row => Array.from(row)))) !== old)
        requestAnimationFrame(() => { window.took = performance.now() - started; });
      else setTimeout(drawn, 5);
    };
    drawn();
  }, {capture: true, once: true});
}"""


def library(folder: Path) -> Path:
    """A library of runs of eight small experts with as many tensors as ViT-B/32."""
    tiny.LAYERS, tiny.EXPERTS = 12, EXPERTS
    tiny.ARCHITECTURE["vision_cfg"]["layers"] = 12
    tiny.family.__defaults__, tiny.write_family.__defaults__ = (EXPERTS, 0), (torch.float32, EXPERTS)
    return tiny_library.write(folder / "benchmark", ("task_arithmetic_lwptv",))


def took(app: App, key: str, event: str, act: object) -> float:
    """Milliseconds from an event to the changed chart."""
    app.page.evaluate(WATCH, [key, event])
    act()
    app.page.wait_for_function("window.took !== null", timeout=60_000)
    milliseconds = app.page.evaluate("window.took")
    app.settled()
    app.page.wait_for_timeout(700)
    return milliseconds


def measure(url: str, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of strokes and of steps of the ratio."""
    strokes, steps = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--headless", "--no-sandbox"])
        context = browser.new_context(viewport={"width": 1440, "height": 1100})
        canvas = new_tab(context, url).open("/masks?painting=true").charted()
        plain = new_tab(context, url).open("/masks?ratio=0.4").charted()
        for number in range(rounds + 1):
            canvas.page.bring_to_front()
            place = ["manual_canvas", 3 * number + 1, number % 8]
            canvas.page.evaluate(PLACE, place)
            canvas.page.wait_for_timeout(300)
            x, y = canvas.page.evaluate(PLACE, place)
            canvas.page.mouse.move(x - 8, y - 3)
            canvas.page.mouse.move(x, y, steps=3)
            canvas.page.wait_for_timeout(200)
            strokes.append(took(canvas, "manual_canvas", "mouseup", lambda x=x, y=y: canvas.page.mouse.click(x, y)))
            plain.page.bring_to_front()
            slider = plain.page.locator("input[type=range]").first
            slider.focus()
            key = ("Home", "End")[number % 2]  # a step by one hundredth may change no mask
            steps.append(took(plain, "saliency_matrix", "keydown", lambda key=key: plain.page.keyboard.press(key)))
        browser.close()
    return strokes[1:], steps[1:]


def serve(folder: Path, benchmark: Path | None) -> tuple[subprocess.Popen[bytes], str]:
    """The app on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"MERGESCOPE_STORE": str(folder / "store")} | (
        {"MERGESCOPE_BENCHMARK": str(benchmark)} if benchmark else {}
    )
    command = [sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.port", str(port)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | settings, stdout=subprocess.DEVNULL, start_new_session=True
    )
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1):
                return process, url
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("The server did not answer.")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print(f"{'model':24} {'stroke ms':>10} {'ratio step ms':>14} {'ratio':>6}")
    for name in (BUNDLED, LARGE):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            process, url = serve(folder, library(folder) if name == LARGE else None)
            try:
                strokes, steps = (statistics.median(times) for times in measure(url, rounds))
            finally:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(20)
        print(f"{name:24} {strokes:10.0f} {steps:14.0f} {strokes / steps:6.2f}", flush=True)


if __name__ == "__main__":
    main()

"""A lesson of a few steps that any benchmark can show, for what draws lessons."""

from __future__ import annotations

from pathlib import Path

KEY = "small"
TEXT = """version: 1
key: small
title: "A & B {{ 7 * 7 }}"
question: "Is 1 < 2 & 'three'?"
minutes: 5
level: introductory
runs:
  ta: {preset: task_arithmetic}
  lw: {preset: task_arithmetic_lwptv}
facts:
  ta_in: {fact: accuracy, run: ta, over: in}
steps:
- kind: predict
  page: scores
  view: {runs: "@ta"}
  chart: id_ood_scatter
  ask: "What is the accuracy of this merge in domain?"
  guess: {number: {low: 0, high: 100, unit: "%"}}
  truth: ta_in
  say: "It is {ta_in:long}."
- kind: do
  page: drift
  view: {drift_view: two extreme cases, shared_directions: 0}
  chart: drift_case_objective
  controls: [shared_directions]
  say: "Move the slider to the end: $\\\\tau_k = \\\\theta_k - \\\\theta_0$."
  goal: {key: shared_directions, is: 4}
  hint: "To the right."
  show: {shared_directions: 4}
- kind: check
  ask: "Which one?"
  answers:
  - {text: "The right one.", right: true, say: "Yes, that one."}
  - {text: "The **wrong** one.", say: "It is the other one."}
  - {text: "None.", say: "There is one."}
- kind: free
  ask: "Say why."
- kind: predict
  page: masks
  view: {run: "@lw", ratio: 0.5, shared_mask: true}
  chart: saliency_matrix
  ask: "Which cells are kept? Mark two."
  guess: {cells: {most: 2}}
  truth: {fact: kept, run: lw, of: cells}
- kind: predict
  page: mix
  view: {desk: "task_arithmetic:scaling=1"}
  ask: "What is the accuracy with half of each task vector?"
  guess: {number: {low: 0, high: 100, unit: "%"}}
  truth: ta_in
"""


def write(folder: Path) -> Path:
    """Put the lesson into a folder, and return the folder, as MERGESCOPE_LESSONS names it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{KEY}.yaml").write_text(TEXT, "utf-8")
    return folder

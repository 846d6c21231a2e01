"""A lesson with a step of every kind, most of them on Masks, for the tests of pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from merging.teaching import lesson_files

KEY = "small"
TEXT = """\
version: 1
key: small
title: A small lesson
question: Does a small lesson work?
minutes: 5
level: introductory
runs:
  ta: {preset: task_arithmetic}
  lw: {preset: task_arithmetic_lwptv}
facts:
  ta_out: {fact: accuracy, run: ta, over: out}
  lw_out: {fact: accuracy, run: lw, over: out}
  lw_in: {fact: accuracy, run: lw, over: in}
steps:
- kind: say
  page: masks
  view: {run: "@lw", ratio: 0.5}
  chart: saliency_matrix
  say: "Task arithmetic has {ta_out} out of domain."
  notes: "Say it slowly."
- kind: predict
  ask: "And with a mask?"
  guess: {number: {low: 0, high: 100, unit: "%"}}
  truth: lw_out
  say: "Now you know."
- kind: predict
  ask: "Which way?"
  guess: {choice: {options: [falls, stays, rises], at: [-1, 1]}}
  truth: {fact: difference, run: lw, against: ta, over: out}
- kind: predict
  ask: "In which order?"
  guess: {order: {options: [first, second, third]}}
  truth: [ta_out, lw_out, lw_in]
- kind: predict
  ask: "Draw it."
  guess: {curve: {low: 0, high: 100, unit: "%", at: [1, 2, 4], axis: Experts}}
  truth: [ta_out, lw_out, lw_in]
- kind: predict
  ask: "Which cells?"
  guess: {cells: {most: 2}}
  truth: {fact: kept, run: lw, of: cells}
- kind: do
  say: "Move the prune ratio above 0.8."
  goal: {key: ratio, between: [0.8, 0.9]}
  show: {ratio: 0.85}
  hint: "To the right."
- kind: explain
  say: "It is {lw_out:long}."
  paper: {source: lwptv, where: Table 2, says: {without: 51.3, with LwPTV: 60.9, unit: "%"}, ours: [ta_out, lw_out]}
- kind: check
  ask: "Why?"
  answers:
  - {text: "It counts tensors.", right: true}
  - {text: "By chance.", say: "Look at the interval."}
  - {text: "By magic.", say: "There is none."}
- kind: free
  ask: "What would you try?"
"""
STEPS = TEXT.count("- kind:")


def install(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Make this lesson the only one, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    (folder / f"{KEY}.yaml").write_text(TEXT, encoding="utf-8")
    patch.setattr(lesson_files, "BUNDLED_LESSONS", folder)
    return folder

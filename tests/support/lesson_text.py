"""A lesson with names for runs and a sweep of the bundled library, and one step."""

from __future__ import annotations

LESSON = """
version: 1
key: small
title: A small lesson
question: Why?
minutes: 5
level: introductory
runs:
  ta: {preset: task_arithmetic}
  lw: {preset: task_arithmetic_lwptv}
  chained: {chain: "lwptv;task_arithmetic:scaling=0.3"}
  nowhere: {chain: "task_arithmetic:scaling=0.123"}
  lam: {sweep: task_arithmetic.scaling}
facts:
  before: {fact: accuracy, run: ta, over: out}
  kept: {fact: kept, run: lw, of: scalars}
steps:
- kind: do
  page: masks
  view: {run: "@lw", ratio: 0.7, shared_mask: true}
  chart: saliency_matrix
  say: "Out of domain it is {before}, with {kept} of the scalars."
  goal: {fact: kept_now, of: scalars, between: [0, 0.5]}
  hint: "More."
  show: {ratio: 0.9}
"""

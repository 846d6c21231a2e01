"""The skeleton of a lesson: one step of every kind, on stored runs, for an author to rewrite."""

from __future__ import annotations

SKELETON = """\
version: 1
key: {key}
title: A title
question: The question that the lesson answers?
minutes: 10
level: introductory            # introductory | intermediate | research
after: []                      # keys of lessons to do before this one
runs:                          # alias -> a preset, a chain, or a sweep by its axes; ids are never written
  plain: {{preset: task_arithmetic}}
  masked: {{preset: task_arithmetic_lwptv}}
facts:                         # `mergescope lessons check` prints them in the texts
  before: {{fact: accuracy, run: plain, over: out}}
  after: {{fact: accuracy, run: masked, over: out}}
  gain: {{fact: difference, run: masked, against: plain, over: out}}
steps:
- kind: say
  page: scores
  view: {{runs: "@plain,@masked"}}
  chart: id_ood_scatter
  say: "What is on the screen, in two sentences."
- kind: predict
  ask: "Task arithmetic scores {{before}} out of domain. What do you expect after masking?"
  guess: {{number: {{low: 0, high: 100, unit: "%"}}}}
  truth: after
- kind: do
  page: masks
  view: {{run: "@masked", ratio: 0.7, shared_mask: true}}
  chart: saliency_matrix
  controls: [ratio]
  say: "Move the prune ratio until fewer than half of the scalars stay."
  goal: {{fact: kept_now, of: scalars, between: [0, 0.5]}}
  hint: "Try a larger ratio."
  show: {{ratio: 0.9}}
- kind: explain
  say: "Why: masking changes accuracy out of domain by {{gain}}."
  paper: {{source: lwptv, where: "Table 2", says: {{plain: 51.3, masked: 60.9, unit: "%"}}, ours: [before, after]}}
- kind: check
  ask: "A question that the lesson has answered?"
  answers:
  - {{text: "The right answer.", right: true}}
  - {{text: "A wrong answer.", say: "Why it is wrong."}}
  - {{text: "Another wrong answer.", say: "Why that is wrong."}}
- kind: free
  ask: "An open task. What would you try next?"
"""


def make_skeleton(key: str) -> str:
    """The text of a new lesson's file, which passes the check on the bundled benchmark without changes."""
    return SKELETON.format(key=key)

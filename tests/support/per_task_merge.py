"""A merge that gives one model per task, and what runs of it share."""

from __future__ import annotations

KEY = "doubles"


def accuracy(scores, task, split="reporting"):
    (row,) = scores[(scores["task"] == task) & (scores["split"] == split)].to_dict("records")
    return row["accuracy"]

"""The fixtures of the tests of the queue."""

from __future__ import annotations

from jobs_fixtures import child, no_child_is_left, runner, store

__all__ = ["child", "no_child_is_left", "runner", "store"]

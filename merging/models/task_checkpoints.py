"""Several checkpoints of one expert: the runs of a task, such as three seeds.

A recipe lists them under the expert's name, ``cars: [a, b, c]``. Everywhere else they are experts called "cars",
"cars#2" and "cars#3", next to one another; the name before the mark is that of the task.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from merging.base.errors import RecipeError
from merging.base.text import plural

NUMBERED = re.compile(r"(.+)#(?:[2-9]|[1-9]\d{1,3})", re.DOTALL)  # a further checkpoint's name: its task, 2 or more


def flatten_experts(experts: Mapping[str, Any]) -> dict[str, Any]:
    """{name: checkpoint}, each list under its expert's name as "cars", "cars#2", ...; numbers have no gap.

    Raises:
        RecipeError: a list is empty, or its expert's name already ends in a number.
    """
    flat: dict[str, Any] = {}
    for task, checkpoints in _gather(experts).items():
        for number, checkpoint in enumerate(checkpoints, 1):
            flat[task if number == 1 else f"{task}#{number}"] = checkpoint
    return flat


def nest_experts(experts: Mapping[str, Any]) -> dict[str, Any]:
    """{task: checkpoint}, with a list for tasks that have several; ``flatten_experts`` reads it back."""
    return {task: found if len(found) > 1 else found[0] for task, found in _gather(experts).items()}


def _gather(experts: Mapping[str, Any]) -> dict[str, list[Any]]:
    """{task: its checkpoints}, from lists and from names with a number."""
    gathered: dict[str, list[Any]] = {}
    for name, value in experts.items():
        task, checkpoints = task_of(name, experts), list(value) if isinstance(value, list | tuple) else [value]
        if not checkpoints or (isinstance(value, list | tuple) and NUMBERED.fullmatch(name)):
            reason = "its list of checkpoints is empty" if not checkpoints else f"{name} is a name within a list"
            raise RecipeError(f"The expert {name!r} cannot be merged: {reason}. Write it as cars: [a, b].")
        gathered.setdefault(task, []).extend(checkpoints)
    return gathered


def task_of(name: str, names: Container[str]) -> str:
    """The task of an expert's checkpoint: "cars" for "cars#2" if "cars" is among the ``names``, else the name."""
    numbered = NUMBERED.fullmatch(name)
    return numbered[1] if numbered and numbered[1] in names else name


def group_by_task(names: Sequence[str]) -> dict[str, list[int]]:
    """{task: positions of its checkpoints in ``names``}, in the order of the names."""
    groups: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        groups.setdefault(task_of(name, names), []).append(position)
    return groups


def list_tasks(names: Sequence[str]) -> tuple[str, ...]:
    """The tasks of experts with these names, without their further checkpoints."""
    return tuple(group_by_task(names))


def count_experts(names: Sequence[str]) -> str:
    """The number of experts in words, and of their checkpoints if there are more: '2 experts (5 checkpoints)'."""
    tasks = len(list_tasks(names))
    further = f" ({len(names)} checkpoints)" if len(names) > tasks else ""
    return f"{plural(tasks, 'expert')}{further}"

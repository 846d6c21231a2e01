"""Pieces of tensors that several threads work on: results in the order of the pieces, the same bytes for any number."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
import tiny
import torch
from torch_threads import torch_threads

from merging.base.errors import Cancelled
from merging.base.parallel import map_in_threads
from merging.base.progress import Meter
from merging.engine import run as engine
from merging.engine import run_inputs as inputs_module
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stream
from merging.methods.slot import Slot
from merging.recipes.recipe import Recipe
from merging.tasks.context import Context

PATIENCE = 60.0  # seconds that a busy machine may take
SLOW = {"dare > ties", "pcb"}  # over a second
CHAINS = {"ties": (), "dare > ties": ("dare",), "emr": (), "pcb": (), "model_stock": ()}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs_module, "BLOCK_CPU", 131)
    monkeypatch.setattr(inputs_module, "PIECE_CPU", 29)


def stream(meter: Meter | None = None) -> Stream:
    base, experts = tiny.family(("a", "b"))
    opened = {name: tiny.checkpoint(state) for name, state in experts.items()}
    inputs = RunInputs(tiny.checkpoint(base), opened, None, torch.device("cpu"))
    return Stream(inputs, (), True, meter or Meter(inputs.work), "Looking")


@pytest.mark.parametrize("chain", [pytest.param(key, marks=pytest.mark.full) if key in SLOW else key for key in CHAINS])
def test_bytes_and_tables_do_not_depend_on_the_number_of_threads(chain: str) -> None:
    base, tuned = tiny.family()
    pretrained, experts = tiny.checkpoint(base), {name: tiny.checkpoint(state) for name, state in tuned.items()}
    recipe = Recipe.build(chain.rsplit(" > ", maxsplit=1)[-1], edits=CHAINS[chain])
    results = []
    for count in (1, 2, 3):
        with torch_threads(count):
            results.append(engine.run_recipe(recipe, pretrained, experts, context=Context(device="cpu")))
    first = results[0]
    for other in results[1:]:
        states = zip(
            (first.task_state_dicts or {"": first.state_dict}).values(),
            (other.task_state_dicts or {"": other.state_dict}).values(),
            strict=True,
        )
        assert all(torch.equal(one[name], state[name]) for one, state in states for name in one)
        assert all(table.equals(first.tables[name]) for name, table in other.tables.items())


@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_come_in_order_though_the_first_block_takes_longest(count: int) -> None:
    """What every piece held when it was worked on is what its place in the files holds."""
    meter, other = Meter(1), threading.Event()

    def work(slot: Slot) -> tuple[str, int, torch.Tensor]:
        if threading.current_thread() is threading.main_thread() or place(slot) != first:
            other.set()
        assert place(slot) != first or count == 1 or other.wait(PATIENCE)
        return slot.name, slot.start, slot.task_vectors.clone()

    with torch_threads(count):
        slots = stream(meter)
        first = (slots.inputs.in_capture_order[0].name, 0)
        seen = list(slots.map(work))
    base, experts = tiny.family(("a", "b"))
    expected = [
        (p.name, start)
        for p in slots.inputs.in_capture_order
        for block in range(0, base[p.name].numel(), 131)
        for start in range(block, min(block + 131, base[p.name].numel()), 29)
    ]
    assert [(name, start) for name, start, _ in seen] == expected
    for name, start, vectors in seen:
        rows = torch.stack(
            [(state[name] - base[name]).reshape(-1)[start : start + vectors.shape[1]] for state in experts.values()]
        )
        assert torch.equal(vectors, rows)
    assert meter.done == slots.inputs.work


def place(slot: Slot) -> tuple[str, int]:
    return slot.name, slot.start


@pytest.mark.parametrize("count", [1, 2, 3])
def test_it_stops_when_it_is_cancelled_and_at_the_first_error_in_order(count: int) -> None:
    stop = threading.Event()
    slots = stream(Meter(1, None, stop))

    def fails(slot: Slot) -> Any:
        raise ValueError(slot.name)

    with torch_threads(count):
        with pytest.raises(ValueError, match=f"^{slots.inputs.in_capture_order[0].name}$"):
            list(slots.map(fails))
        taken = []
        with pytest.raises(Cancelled):
            for result in slots.map(place):
                taken.append(result)
                stop.set()
    assert len(taken) == 1


def test_only_so_many_tasks_are_started_before_results_are_used() -> None:
    running, done = list[int](), list[int]()

    def task(number: int) -> int:
        running.append(number)
        return number

    with map_in_threads((partial(task, number) for number in range(20)), 2, 3, lambda: None) as results:
        for number in results:
            assert max([*running, 0]) <= number + 2  # one whose result is used, and two behind it
            done.append(number)
    assert done == list(range(20))

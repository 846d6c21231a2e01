"""Checks before the first task that all workers run the same program on the same kind of machine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from merging.base.errors import WorkerError
from merging.base.text import first_few
from merging.tasks.context import Context
from merging.tasks.kinds import ABOUT
from merging.tasks.worker import decode_answer, encode_request
from merging.tasks.workers.fan_out import FanOut, WorkerTask
from merging.tasks.workers.worker_facts import PROGRAM_FACTS, describe_worker, hardware_name, machine_name
from merging.tasks.workers.workers import Workers

START_SECONDS = 60.0  # seconds that processes of this machine have to start
ANSWER_PAUSE_SECONDS = 0.5  # seconds that a worker waits before it answers again, so that the others answer, too
WorkerFacts = Mapping[str, Any]
SILENT_CONTEXT = Context(
    warn=lambda sentence: None
)  # without warnings: a worker lost while it is questioned is left out


def check_workers(
    workers: Workers,
    warn: Callable[[str], None],
    device: str = "auto",
    machines: Collection[str] = (),
    mixed: bool = False,
) -> Workers:
    """The workers that run this program on one kind of machine. ``warn`` is called for workers that are left out.

    ``only`` names machines; workers on other machines are left out without a warning. ``mixed`` allows several kinds of
    hardware.

    Raises:
        WorkerError: no worker answers or fits, or one does not fit and the engine cannot leave it out.
    """
    present = question_workers(workers, device)
    found = _select_machines(workers, present, machines) if machines else present
    own = describe_worker({"device": device})
    skewed = [each for each in found if any(each[key] != own[key] for key in PROGRAM_FACTS)]
    same = [each for each in found if each not in skewed]
    for each in skewed:
        sentence = (
            f"Worker {each['name']} runs {_program_digest(each)}; this program is {_program_digest(own)}. "
            f"Update it, or {'stop it' if workers.restrict is None else 'leave it out with --only'}."
        )
        if workers.restrict is None or not same:
            raise WorkerError(sentence)
        warn(sentence)
    chosen = [each for each in same if mixed or each["hardware"] == same[0]["hardware"]]
    if len(chosen) < len(same):
        sentence = _describe_other_hardware(same, chosen)
        if workers.restrict is None:
            raise WorkerError(f"{sentence} Start workers on one kind of machine.")
        warn(sentence)
    fitting = workers if workers.restrict is None else workers.restrict(chosen, bool(machines))
    fitting.memory, fitting.hardware = _available_memory(chosen), str(chosen[0]["hardware"])
    kinds = {str(each["kind"]) for each in chosen}
    fitting.kind = kinds.pop() if len(kinds) == 1 else ""
    return fitting


def _select_machines(workers: Workers, found: list[WorkerFacts], only: Collection[str]) -> list[WorkerFacts]:
    """The workers on the machines ``only``.

    Raises:
        WorkerError: one of the machines has no worker, or the other workers cannot be left out.
    """
    machines = sorted({machine_name(each) for each in found})
    if missing := [name for name in only if name not in machines]:
        raise WorkerError(f"There is no worker on {first_few(missing)}. There are some on {first_few(machines)}.")
    if set(machines) != set(only) and workers.restrict is None:
        raise WorkerError(f"{workers.title.capitalize()} compute together, so that --only cannot leave some out.")
    return [each for each in found if machine_name(each) in only]


def question_workers(
    workers: Workers, device: str = "auto", probe: Mapping[str, str] | None = None
) -> list[WorkerFacts]:
    """The facts that ``describe_worker`` gives on each worker, once each as far as the engine can reach all of them.

    With a ``probe``, the path of a file and its text, the facts include whether the worker reads that text there.

    Raises:
        WorkerError: no worker answers.
    """
    found: dict[tuple[str, int], WorkerFacts] = {}
    reasons: list[str] = []
    question = {"device": device, "probe": probe}
    if workers.ask_each is not None:
        for address, raw in workers.ask_each(ABOUT, encode_request(question)).items():
            each = decode_answer(raw) | {"at": address}
            found[each["name"], each["pid"]] = each
    begun, patience = time.monotonic(), START_SECONDS if workers.make_executor is not None else 0.0
    pause = 0.0
    while workers.ask_each is None and not reasons and len(found) < workers.count:
        request = {**question, "pause": pause}
        fan = FanOut(
            ABOUT,
            workers,
            lambda _, each: found.update({(each["name"], each["pid"]): each}),
            lambda _, error: reasons.append(str(error)),
            SILENT_CONTEXT,
        )
        fan.run([WorkerTask(str(number), partial(dict, request)) for number in range(workers.count)])
        if time.monotonic() - begun > patience:
            break
        pause = ANSWER_PAUSE_SECONDS  # the workers that started first answered several times
    if not found:
        raise WorkerError(f"No worker answers of {workers.title}. {first_few(reasons, 1)}".strip())
    return [found[key] for key in sorted(found)]


def is_same_hardware(workers: Workers, device: str, warn: Callable[[str], None], work_name: str) -> bool:
    """Whether workers have the same hardware as this process, or unknown hardware; one result needs one kind.

    If not, ``warn`` is called with a sentence that ``what``, such as "merge", is computed here.
    """
    own = hardware_name(device)
    if workers.hardware in {"", own}:
        return True
    warn(f"The {work_name} is computed here: the workers compute on {workers.hardware}, this program on {own}.")
    return False


def _available_memory(found: list[WorkerFacts]) -> int:
    """Bytes that each worker may take: the smallest limit, or share of its machine's free memory, of any of them."""
    machines = Counter(map(machine_name, found))
    shares = [int(each["memory"]) // machines[machine_name(each)] for each in found]
    return min(min(share, int(each["limit"]) or share) for share, each in zip(shares, found, strict=True))


def _program_digest(each: WorkerFacts) -> str:
    return f"Mergescope {each['version']} ({each['sources'][:4]}…) with torch {each['torch']}, NumPy {each['numpy']}"


def _describe_other_hardware(same: list[WorkerFacts], chosen: list[WorkerFacts]) -> str:
    left_out = [each for each in same if each not in chosen]
    others = first_few(list(dict.fromkeys(str(each["hardware"]) for each in left_out)))
    verb = "is" if len(left_out) == 1 else "are"
    begin = f"{len(left_out)} of {len(same)} workers {verb} left out: computing on {others}"
    return f"{begin}, the others on {chosen[0]['hardware']}."

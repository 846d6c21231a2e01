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

START_SECONDS = 60.0  # within which the processes of this machine must start
ANSWER_PAUSE_SECONDS = 0.5  # that a worker waits before it answers again, so that the other workers answer, too
WorkerFacts = Mapping[str, Any]
SILENT_CONTEXT = Context(warn=lambda sentence: None)  # a worker that is lost while it is questioned is left out


def check_workers(
    workers: Workers,
    warn: Callable[[str], None],
    device: str = "auto",
    machines: Collection[str] = (),
    mixed: bool = False,
) -> Workers:
    """The workers that run this program on one kind of machine. ``warn`` is called for workers that are left out.

    ``machines`` are names of machines (empty: all); workers on others are left out without a warning. ``mixed`` allows
    several kinds of hardware.

    Raises:
        WorkerError: no worker answers or fits, or one does not fit and the backend cannot leave it out.
    """
    all_facts = question_workers(workers, device)
    candidates = _select_machines(workers, all_facts, machines) if machines else all_facts
    own_facts = describe_worker({"device": device})
    outdated = [facts for facts in candidates if any(facts[key] != own_facts[key] for key in PROGRAM_FACTS)]
    matching = [facts for facts in candidates if facts not in outdated]
    for facts in outdated:
        sentence = (
            f"Worker {facts['name']} runs {_describe_program(facts)}; this program is {_describe_program(own_facts)}. "
            f"Update it, or {'stop it' if workers.restrict is None else 'leave it out with --only'}."
        )
        if workers.restrict is None or not matching:
            raise WorkerError(sentence)
        warn(sentence)
    selected = [facts for facts in matching if mixed or facts["hardware"] == matching[0]["hardware"]]
    if len(selected) < len(matching):
        sentence = _describe_other_hardware(matching, selected)
        if workers.restrict is None:
            raise WorkerError(f"{sentence} Start workers on one kind of machine.")
        warn(sentence)
    # If machines were named, workers that join later on other machines are left out, too.
    fitting = workers if workers.restrict is None else workers.restrict(selected, bool(machines))
    fitting.memory, fitting.hardware = _find_available_memory(selected), str(selected[0]["hardware"])
    kinds = {str(facts["kind"]) for facts in selected}
    fitting.kind = kinds.pop() if len(kinds) == 1 else ""
    return fitting


def _select_machines(workers: Workers, candidates: list[WorkerFacts], machines: Collection[str]) -> list[WorkerFacts]:
    """The workers on these machines.

    Raises:
        WorkerError: one of the machines has no worker, or the other workers cannot be left out.
    """
    known = sorted({machine_name(facts) for facts in candidates})
    if missing := [name for name in machines if name not in known]:
        raise WorkerError(f"There is no worker on {first_few(missing)}. There are some on {first_few(known)}.")
    if set(known) != set(machines) and workers.restrict is None:
        raise WorkerError(f"{workers.title.capitalize()} compute together, so that --only cannot leave some out.")
    return [facts for facts in candidates if machine_name(facts) in machines]


def question_workers(
    workers: Workers, device: str = "auto", probe: Mapping[str, str] | None = None
) -> list[WorkerFacts]:
    """The facts of each worker, as ``describe_worker`` returns them; workers that the backend cannot reach are missing.

    ``probe`` has the "path" of a file and its "text"; the facts then include whether the worker reads that text there.

    Raises:
        WorkerError: no worker answers.
    """
    answers: dict[tuple[str, int], WorkerFacts] = {}  # (worker's name, process number) -> its facts
    reasons: list[str] = []
    question = {"device": device, "probe": probe}
    if workers.ask_each is not None:
        for address, raw in workers.ask_each(ABOUT, encode_request(question)).items():
            facts = decode_answer(raw) | {"at": address}
            answers[facts["name"], facts["pid"]] = facts
    # Processes of this machine (those with ``make_executor``) may still be starting.
    began, seconds_to_wait = time.monotonic(), START_SECONDS if workers.make_executor is not None else 0.0
    pause = 0.0
    # A backend that cannot ask each worker gets as many equal questions as workers, until each has answered one.
    while workers.ask_each is None and not reasons and len(answers) < workers.count:
        request = {**question, "pause": pause}
        fan = FanOut(
            ABOUT,
            workers,
            lambda _, facts: answers.update({(facts["name"], facts["pid"]): facts}),
            lambda _, error: reasons.append(str(error)),
            SILENT_CONTEXT,
        )
        fan.run([WorkerTask(str(number), partial(dict, request)) for number in range(workers.count)])
        if time.monotonic() - began > seconds_to_wait:
            break
        pause = ANSWER_PAUSE_SECONDS  # some workers answered several times and others not at all
    if not answers:
        raise WorkerError(f"No worker answers of {workers.title}. {first_few(reasons, 1)}".strip())
    return [answers[key] for key in sorted(answers)]


def is_same_hardware(workers: Workers, device: str, warn: Callable[[str], None], work_name: str) -> bool:
    """Whether workers have the same hardware as this process, or unknown hardware.

    Otherwise ``warn`` is called with the sentence that ``work_name``, such as "merge", is computed in this process.
    """
    own_hardware = hardware_name(device)
    if workers.hardware in {"", own_hardware}:
        return True
    warn(
        f"The {work_name} is computed here: the workers compute on {workers.hardware}, this program on {own_hardware}."
    )
    return False


def _find_available_memory(all_facts: list[WorkerFacts]) -> int:
    """Bytes that every worker may take: the smallest of the workers' limits and shares of their machines' memory."""
    counts = Counter(map(machine_name, all_facts))
    shares = [int(facts["memory"]) // counts[machine_name(facts)] for facts in all_facts]
    return min(min(share, int(facts["limit"]) or share) for share, facts in zip(shares, all_facts, strict=True))


def _describe_program(facts: WorkerFacts) -> str:
    versions = f"torch {facts['torch']}, NumPy {facts['numpy']}"
    return f"Mergescope {facts['version']} ({facts['sources'][:4]}…) with {versions}"


def _describe_other_hardware(matching: list[WorkerFacts], selected: list[WorkerFacts]) -> str:
    left_out = [facts for facts in matching if facts not in selected]
    hardware = first_few(list(dict.fromkeys(str(facts["hardware"]) for facts in left_out)))
    verb, pronoun = ("is", "it computes") if len(left_out) == 1 else ("are", "they compute")
    begin = f"{len(left_out)} of {len(matching)} workers {verb} left out: {pronoun} on {hardware}"
    return f"{begin}, the others on {selected[0]['hardware']}."

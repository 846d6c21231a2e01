"""Whether workers fit before the first task: the same program, the same kind of machine."""

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
from merging.tasks.workers.worker_facts import SAME, describe_worker, hardware_name, machine_name
from merging.tasks.workers.workers import Workers

ALL_START = 60.0  # seconds that processes of this machine have to start
PAUSE = 0.5
About = Mapping[str, Any]
UNTOLD = Context(warn=lambda sentence: None)  # a worker that is lost while it is asked is not there


def check_workers(
    workers: Workers,
    warn: Callable[[str], None],
    device: str = "auto",
    only: Collection[str] = (),
    mixed: bool = False,
) -> Workers:
    """The workers that run this program on one kind of machine. ``warn`` gets a sentence for those left out.

    ``only`` names machines; those of others are left out without a word. ``mixed`` keeps other kinds of hardware.

    Raises:
        WorkerError: none answers or fits, or one does not and the engine cannot leave it out.
    """
    there = question_workers(workers, device)
    found = _select_machines(workers, there, only) if only else there
    own = describe_worker({"device": device})
    skewed = [each for each in found if any(each[key] != own[key] for key in SAME)]
    same = [each for each in found if each not in skewed]
    for each in skewed:
        sentence = (
            f"Worker {each['name']} runs {_program_digest(each)}; this program is {_program_digest(own)}. "
            f"Update it, or {'stop it' if workers.only is None else 'leave it out with --only'}."
        )
        if workers.only is None or not same:
            raise WorkerError(sentence)
        warn(sentence)
    kept = [each for each in same if mixed or each["hardware"] == same[0]["hardware"]]
    if len(kept) < len(same):
        sentence = _describe_other_hardware(same, kept)
        if workers.only is None:
            raise WorkerError(f"{sentence} Start workers on one kind of machine.")
        warn(sentence)
    fitting = workers if workers.only is None else workers.only(kept, bool(only))
    fitting.memory, fitting.hardware = _available_memory(kept), str(kept[0]["hardware"])
    kinds = {str(each["kind"]) for each in kept}
    fitting.kind = kinds.pop() if len(kinds) == 1 else ""
    return fitting


def _select_machines(workers: Workers, found: list[About], only: Collection[str]) -> list[About]:
    """Those on these machines. Raises WorkerError if there are none on one, or the others cannot be left out."""
    machines = sorted({machine_name(each) for each in found})
    if missing := [name for name in only if name not in machines]:
        raise WorkerError(f"There is no worker on {first_few(missing)}. There are some on {first_few(machines)}.")
    if set(machines) != set(only) and workers.only is None:
        raise WorkerError(f"{workers.called.capitalize()} compute together, so that --only cannot leave some out.")
    return [each for each in found if machine_name(each) in only]


def question_workers(workers: Workers, device: str = "auto", probe: Mapping[str, str] | None = None) -> list[About]:
    """What workers say of themselves, each once as far as the engine lets us ask all of them.

    With a ``probe``, a file and its text, they say whether they see the same there.

    Raises:
        WorkerError: none answers.
    """
    found: dict[tuple[str, int], About] = {}
    reasons: list[str] = []
    asked = {"device": device, "probe": probe}
    if workers.each is not None:
        for at, raw in workers.each(ABOUT, encode_request(asked)).items():
            each = decode_answer(raw) | {"at": at}
            found[each["name"], each["pid"]] = each
    begun, patience = time.monotonic(), ALL_START if workers.renew is not None else 0.0
    pause = 0.0
    while workers.each is None and not reasons and len(found) < workers.count:
        request = {**asked, "pause": pause}
        fan = FanOut(
            ABOUT,
            workers,
            lambda _, each: found.update({(each["name"], each["pid"]): each}),
            lambda _, error: reasons.append(str(error)),
            UNTOLD,
        )
        fan.run([WorkerTask(str(number), partial(dict, request)) for number in range(workers.count)])
        if time.monotonic() - begun > patience:
            break
        pause = PAUSE  # those that started first have answered for all
    if not found:
        raise WorkerError(f"No worker answers of {workers.called}. {first_few(reasons, 1)}".strip())
    return [found[key] for key in sorted(found)]


def is_same_hardware(workers: Workers, device: str, warn: Callable[[str], None], what: str) -> bool:
    """Whether workers compute on what this program computes on, as far as is known: one result needs one kind.

    ``warn`` gets a sentence if not: the ``merge``, say, is computed here.
    """
    own = hardware_name(device)
    if workers.hardware in {"", own}:
        return True
    warn(f"The {what} is computed here: the workers compute on {workers.hardware}, this program on {own}.")
    return False


def _available_memory(found: list[About]) -> int:
    """Bytes that each of these may take: its limit, and its part of what its machine has free."""
    machines = Counter(map(machine_name, found))
    shares = [int(each["memory"]) // machines[machine_name(each)] for each in found]
    return min(min(share, int(each["limit"]) or share) for share, each in zip(shares, found, strict=True))


def _program_digest(each: About) -> str:
    return f"Mergescope {each['version']} ({each['sources'][:4]}…) with torch {each['torch']}, NumPy {each['numpy']}"


def _describe_other_hardware(same: list[About], kept: list[About]) -> str:
    left = [each for each in same if each not in kept]
    others = first_few(list(dict.fromkeys(str(each["hardware"]) for each in left)))
    verb = "is" if len(left) == 1 else "are"
    begin = f"{len(left)} of {len(same)} workers {verb} left out: computing on {others}"
    return f"{begin}, the others on {kept[0]['hardware']}."

"""Runs the common checks on one method, and says of each whether it holds."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from merging.base.errors import Cancelled, MergingError, ParameterError
from merging.base.outside_code import OUR_FOLDER
from merging.base.text import did_you_mean, printable
from merging.methods.method import Method
from merging.methods.origins import OriginKind
from merging.study.method_checks.common_checks import CHECKS, Check
from merging.study.method_checks.trial_merges import CheckFailedError
from merging.tasks.context import QUIET, Context

MAX_REASON = 300  # characters


@dataclass(frozen=True)
class CheckResult:
    """One check of one method: its name, its sentence, and why it does not hold (empty if it does)."""

    method: str
    name: str
    sentence: str
    reason: str = ""
    skipped: bool = False


def run_checks(method: Method, skipped: Collection[str] = (), context: Context = QUIET) -> Iterator[CheckResult]:
    """The result of every check.

    Raises:
        ParameterError: no check has a name that is to be skipped.
        Cancelled: the caller cancelled between two checks.
    """
    names = [check.__name__ for check in CHECKS]
    for name in skipped:
        if name not in names:
            raise ParameterError(f"There is no check {name!r}.{did_you_mean(name, names)} Known: {', '.join(names)}.")
    for check in CHECKS:
        context.check()
        sentence = (check.__doc__ or "").splitlines()[0]
        is_skipped = check.__name__ in skipped
        reason = "" if is_skipped else _find_reason(check, method, context.device)
        yield CheckResult(method.key, check.__name__, sentence, reason, is_skipped)


def _find_reason(check: Check, method: Method, device: str) -> str:
    """Why a check does not hold for a method; empty if it does. An error of the method's code is named by its line."""
    try:
        check(method, device)
    except Cancelled:
        raise
    except (CheckFailedError, MergingError) as error:
        return printable(str(error), MAX_REASON)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if _is_of(frame.filename, method)]
        where = f"{Path(own[-1].filename).name}, line {own[-1].lineno}: " if own else ""
        return printable(f"{where}{type(error).__name__}: {error}", MAX_REASON)
    return ""


def _is_of(file: str, method: Method) -> bool:
    """Whether a file is the one of a method; of a method from a package, any file that is not ours."""
    origin = method.origin
    is_single = origin is not None and origin.kind is OriginKind.FILE
    return file == origin.place if is_single and origin else not Path(file).is_relative_to(OUR_FOLDER)

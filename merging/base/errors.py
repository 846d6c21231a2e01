"""Every error of this package, as one tree. Catch ``MergingError`` to catch them all.

MergingError
├── ParameterError          a value outside its bounds, an unknown parameter            (also ValueError)
├── UnknownMethodError      no method has that key; the message names the nearest one   (also KeyError)
├── MethodError             a method of the user's own that cannot be registered        (also ValueError)
├── RecipeError             a recipe that cannot be read, or whose chain is invalid
├── NeedsError              a method needs data that the call does not provide
├── CheckpointError         a file or mapping that is not a usable checkpoint
│   ├── CompatibilityError  pretrained and experts do not fit together; carries the fit report
│   └── FamilyError         tensor names of no known model family
├── TaskError               a benchmark folder, a data set or a head that cannot be used
├── LessonError             a lesson's file that cannot be read                         (also ValueError)
├── StoreError              a run that cannot be written or does not exist
│   └── ModeError           this server's mode, or its limit of jobs per visitor, forbids the action
├── HubError                the Hub, or the cache of its files, did not provide a file or an answer
├── WorkerError             workers cannot be started, do not fit, or were lost
└── Cancelled               the caller asked to stop; nothing is stored, unless the text says so
    └── Paused              the caller asked to continue later; the progress so far is stored
        └── WorkersGone     there are no workers any more; their finished tasks are stored

Every message states the problem, the expected value, the actual value, and a remedy.
"""

from __future__ import annotations

from typing import Any

from merging.base.text import visible_lines

# Why a HubError was raised, in the order of the names: a setting forbids the call; there is no connection; terms are
# not accepted or a token is refused; a repository, revision or file does not exist; a file differs from the expected
# one; the disk is full or not writable; the Hub has not answered for a while; another reason.
HUB_REASONS = ("setting", "connection", "access", "missing", "digest", "disk", "busy", "other")


class MergingError(Exception):
    """An error that this package raises on purpose; its text is meant for the user.

    Invisible characters, which may come from a quoted file, are shown as escapes. Line breaks stay.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*(visible_lines(part) if isinstance(part, str) else part for part in parts))


class ParameterError(MergingError, ValueError):
    """A parameter is unknown or its value is outside its bounds."""


class UnknownMethodError(MergingError, KeyError):
    """No method is registered under that key."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])


class MethodError(MergingError, ValueError):
    """A method of the user's own cannot be registered."""


class RecipeError(MergingError, ValueError):
    """A recipe cannot be read, or its chain is invalid."""


class NeedsError(MergingError, ValueError):
    """A method needs exemplars, labels or test data that the call does not provide."""


class CheckpointError(MergingError, ValueError):
    """A file or mapping is not a usable checkpoint."""


class CompatibilityError(CheckpointError):
    """Pretrained and experts do not fit together; ``report`` is the fit report, which names every tensor."""

    def __init__(self, text: str, report: Any = None) -> None:
        super().__init__(text)
        self.report = report


class FamilyError(CheckpointError):
    """Tensor names match no known model family."""


class TaskError(MergingError, ValueError):
    """A benchmark folder, a data set or a head cannot be used."""


class LessonError(MergingError, ValueError):
    """A lesson's file cannot be read, or names something that does not exist."""


class StoreError(MergingError):
    """A run cannot be written, or does not exist."""


class ModeError(StoreError):
    """This server's mode or its limits on jobs do not allow the action, or the mode is unknown."""


class HubError(MergingError):
    """The Hub, or the cache of its files, did not provide a file or an answer.

    ``reason`` is one of ``HUB_REASONS``. ``later`` is True if the same call may succeed later and continue the download
    where it stopped.
    """

    def __init__(self, text: str, reason: str = "other", later: bool = False) -> None:
        super().__init__(text)
        self.reason, self.later = reason, later


class WorkerError(MergingError):
    """Workers cannot be started, do not fit this program, or were lost while they were computing."""


class EvaluatorError(MergingError):
    """The user's program that measures models cannot be started, fails, or prints no scores."""


class Cancelled(MergingError):  # noqa: N818 - a request that was honored, not an error
    """The caller asked to stop; nothing is stored, unless the text says so."""


class Paused(Cancelled):
    """The caller asked to continue later; the progress so far is stored, and the same call continues from there."""


class WorkersGone(Paused):
    """There has been no worker for a while; finished tasks are stored, and the same call continues from there."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or torch could not allocate memory, on any device."""
    refused = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return refused or (isinstance(error, RuntimeError) and "allocate memory" in str(error))


def describe_unexpected(error: BaseException) -> str:
    """A sentence about an error that the package does not raise on purpose."""
    return f"Unexpected {type(error).__name__}: {str(error)[:200] or 'no reason given'}"

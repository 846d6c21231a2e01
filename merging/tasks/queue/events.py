"""The keys of the first and the last line that a job's child writes to its file of events."""

WORKER = "worker"  # first: which process it is
CODE, ERROR = "code", "error"  # last: its exit code, and what went wrong
GOES_ON = " The same command goes on from there."  # what a terminal hears behind the reason of a pause

"""The keys of the first and the last event that a job's child writes to its file of events."""

WORKER_KEY = "worker"  # of the first event: the child's process
CODE_KEY, ERROR_KEY = "code", "error"  # of the last event: the exit code, and the error if there is one
RESUME_HINT = " The same command goes on from there."  # appended to the reason of a pause in a terminal

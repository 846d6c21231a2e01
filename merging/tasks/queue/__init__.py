"""The queue of jobs: their child processes, the order in which sessions take turns, and the jobs' files."""

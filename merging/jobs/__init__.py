"""The queue of child processes, and what the disk knows of it."""

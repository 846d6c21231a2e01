"""The queue of child processes, and its files on the disk."""

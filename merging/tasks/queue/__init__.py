"""The queue of child processes, whose turn it is, and its files on the disk."""

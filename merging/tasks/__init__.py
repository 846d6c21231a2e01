"""One way to compute: contexts, kinds of tasks and workers, stored results, and what becomes of damaged ones."""

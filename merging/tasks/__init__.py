"""One way to compute: tasks and their results, who computes them, and the queue; kinds of work are dotted names."""

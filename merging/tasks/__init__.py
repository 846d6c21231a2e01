"""Tasks and their results, the workers that compute tasks, and the queue of jobs."""

"""Tasks and their results, workers that compute tasks, and the queue of jobs."""

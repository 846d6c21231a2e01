"""One way to compute: what a computation is handed down, and what processes compute for each other."""

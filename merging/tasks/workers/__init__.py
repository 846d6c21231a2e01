"""Tasks for other processes and machines, and who computes them."""

"""The published experiments: their plans, the job that fetches and computes one, and its table."""

"""Scores that the benchmark did not measure, of runs and of sweeps, as pages show them."""

"""Charts of sweeps, one per file."""

"""Sweeps: many runs along one or two axes."""

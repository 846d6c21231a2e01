"""Tidy tables about checkpoints and runs; no drawing."""

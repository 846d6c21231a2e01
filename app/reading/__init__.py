"""Cached reading of stored results, without widgets."""

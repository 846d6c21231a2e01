"""Exports, the user's own models and data sets, and published experiments."""

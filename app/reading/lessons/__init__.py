"""Lessons, with their facts as they are stored today."""

"""Lessons, the computed facts in their texts, and polls of a class."""

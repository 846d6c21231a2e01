"""Lessons, the facts that they check, and the guesses of a class."""

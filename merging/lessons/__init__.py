"""Guided lessons: their files, facts computed from stored tables, goals, verdicts, progress, and their check."""

"""Inspection of checkpoints before a merge: facts, distances, and whether they fit together."""

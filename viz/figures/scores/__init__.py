"""Charts of scores, one per file."""

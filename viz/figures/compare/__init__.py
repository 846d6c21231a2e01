"""Charts of two runs side by side, one per file."""

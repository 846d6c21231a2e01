"""Charts of stored runs, one per file."""

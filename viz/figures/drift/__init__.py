"""Charts of feature drift, one per file."""

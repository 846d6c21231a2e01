"""Charts of features out of domain, one per file."""

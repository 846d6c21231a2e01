"""Charts of conflicts between experts, one per file."""

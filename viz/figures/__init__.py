"""The charts, grouped by subject."""

"""The stored measurements, one per file."""

"""The commands that start and list workers of an engine."""

"""Checkpoints and a chain of methods as data: text form, presets, and what papers state."""

"""Recipes (checkpoints and a chain of methods, as data), their text form, presets, and figures from papers."""

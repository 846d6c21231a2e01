"""Recipes, which are checkpoints and a chain of methods as data: their text form, presets, and papers' figures."""

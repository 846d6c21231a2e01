"""Labeled images on disk, in several formats."""

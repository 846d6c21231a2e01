"""Labeled images on disk, whatever stores them."""

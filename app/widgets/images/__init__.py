"""Thumbnails of a benchmark's images, and the links that open them on the page Image."""

"""Pieces of a page that several topics draw."""

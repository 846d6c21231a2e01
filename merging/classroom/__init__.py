"""Polls of a class. Nothing about people is kept."""

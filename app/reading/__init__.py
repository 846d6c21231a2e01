"""Cached reading of what is stored; no widget is drawn here."""

"""Packs: files with stored results but without weights, which any Mergescope opens read-only."""

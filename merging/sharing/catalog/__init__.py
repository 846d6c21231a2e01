"""The user's own models and data sets: found, recognized, grouped and kept."""

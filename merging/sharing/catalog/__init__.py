"""The user's own models and data sets: how they are found, recognized, grouped and stored."""

"""Scores that runs were given from elsewhere, as pages show them."""

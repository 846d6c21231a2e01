"""Scores of models in one form, whether the benchmark, a user's file or a user's program gave them."""

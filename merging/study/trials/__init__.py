"""Measurements of a whole benchmark, which consist of trials: merges and evaluations, done here or by workers."""

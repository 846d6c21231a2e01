"""Measurements of a whole benchmark that consist of trials: merges and evaluations, in this process or on workers."""

"""Tuning: the search for the best values of a chain, beside random search and a grid."""

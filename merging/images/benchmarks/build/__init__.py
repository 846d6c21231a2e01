"""Builds a benchmark folder from data sets, experts and heads."""

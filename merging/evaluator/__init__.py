"""Scores by a program of the user's (MERGESCOPE_EVALUATOR), which gets the folder of an exported model."""

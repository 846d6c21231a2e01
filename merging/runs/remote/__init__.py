"""Whole tensors of a merge, and evaluations, on workers: what is asked of them, and what they answer."""

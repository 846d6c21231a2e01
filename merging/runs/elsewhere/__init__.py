"""Whole tensors of a merge on workers: what is asked of them, what they answer, and who writes the file."""

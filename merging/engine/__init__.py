"""Runs recipes on opened checkpoints: merged tensors, modules on top of them, and scores."""

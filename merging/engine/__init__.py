"""From a recipe, opened checkpoints and data to merged tensors, to modules on top of them, and to their scores."""

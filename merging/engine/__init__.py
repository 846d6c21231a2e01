"""From a recipe, opened checkpoints and exemplars to merged tensors, streamed tensor by tensor."""

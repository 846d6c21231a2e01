"""Networks other than CLIP: the parameters of a checkpoint, inferred from names, shapes and types."""

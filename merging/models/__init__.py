"""Models: what a checkpoint is, its tensors and digest, its format, the Hub, and whether a team of models fits."""

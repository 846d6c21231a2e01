"""How checkpoints are stored: one module for each container, all read by offset, none of them run."""

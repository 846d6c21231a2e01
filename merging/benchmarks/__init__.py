"""Tasks with images and heads: evaluation on them, and metrics."""

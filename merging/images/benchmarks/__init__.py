"""Tasks with images and heads, in the folders that benchmarks are read from."""

"""What data tell of any torch module: the rows that enter its layers and the gradients of a loss, and their files."""

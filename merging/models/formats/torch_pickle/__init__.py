"""PyTorch's pickled files, read without calling anything that they name."""

"""PyTorch's pickled files, read without calling any name in them."""

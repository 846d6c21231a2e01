"""Accuracy of merged models on benchmarks, from the features of images."""

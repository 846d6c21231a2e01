"""Benchmarks: folders with tasks, their images and zero-shot heads, and models."""

"""Images: CLIP's towers, data sets, and the benchmarks that are made of them."""

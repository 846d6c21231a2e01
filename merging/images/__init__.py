"""Images: CLIP's image and text towers, data sets of images, and benchmarks that are made from data sets."""

"""What is asked of one image, measured over all images of the reporting half."""

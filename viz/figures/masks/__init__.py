"""Charts of saliency and masks, one per file."""

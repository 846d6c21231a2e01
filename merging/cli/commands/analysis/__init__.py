"""Commands that look into a stored run, image by image."""

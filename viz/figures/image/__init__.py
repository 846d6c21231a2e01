"""Charts of the page Image: one image through several models, and the same questions over whole data sets."""

"""The questions of the page Image over whole data sets."""

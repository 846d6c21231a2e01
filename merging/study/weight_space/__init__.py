"""What models look like in the space of their weights: distances, spectra, and how alike their features are."""

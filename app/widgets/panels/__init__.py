"""Parts of pages with their own controls and charts: map of the network, preview, weights put back."""

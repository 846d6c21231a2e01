"""Tables about runs: measurements, which are stored, and what is computed when a page is drawn."""
